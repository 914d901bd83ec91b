from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from workers.traces.catalogue import GENERATORS, generate, settings_of
from workers.traces.workload import Ask, WorkloadError


def common(one: Ask, other: Ask) -> int:
    """Return how many segments two prompts begin with together."""
    return next(
        (place for place, (a, b) in enumerate(zip(one.segments, other.segments, strict=False)) if a != b),
        min(len(one.segments), len(other.segments)),
    )


@pytest.mark.parametrize("name", GENERATORS)
def test_a_seed_decides_all_of_a_workload(name: str) -> None:
    assert generate(name, seed=5) == generate(name, seed=5)
    assert generate(name, seed=5) != generate(name, seed=6)


@pytest.mark.parametrize("name", GENERATORS)
def test_requests_come_in_order_at_about_the_rate_asked_for(name: str) -> None:
    asked = generate(name, seed=1, qps=10.0, seconds=600.0)
    assert all(one.at <= other.at for one, other in pairwise(asked.asks))
    assert 0.75 < len(asked.asks) / 6000 < 1.25
    assert min(ask.output for ask in asked.asks) >= 1
    assert asked.seconds < 660


def test_groups_are_a_fixed_corpus_asked_over_and_over() -> None:
    asked = generate("groups,groups=4,questions=3,shared=100,own=20,output=9,qps=50", seed=1)
    prompts = Counter(ask.segments for ask in asked.asks)
    assert len(prompts) == 12
    assert max(prompts.values()) - min(prompts.values()) <= 1
    assert {ask.tokens for ask in asked.asks} == {120}
    assert len({segments[0] for segments in prompts}) == 4


def test_a_hot_key_has_its_share_and_comes_in_bursts() -> None:
    asked = generate("hot,share=0.5,burst=10,seconds=2000", seed=1)
    hot = [ask for ask in asked.asks if ask.segments[0][0] == 0]
    assert 0.4 < len(hot) / len(asked.asks) < 0.6
    assert set(Counter(ask.at for ask in hot).values()) == {10}


def test_siblings_are_cold_and_come_together() -> None:
    asked = generate("siblings,siblings=7", seed=1)
    families = Counter((ask.segments[0], ask.at) for ask in asked.asks)
    assert set(families.values()) == {7}
    assert len({prefix for prefix, _ in families}) == len(families)


def test_rollouts_sample_each_prompt_several_times_and_sync_between_steps() -> None:
    asked = generate("rollouts,samples=6,every=30,seconds=120,sync=2", seed=1)
    assert set(Counter((ask.segments, ask.at) for ask in asked.asks).values()) == {6}
    assert [sync.at for sync in asked.syncs] == [30, 60, 90]
    assert len({ask.output for ask in asked.asks}) > 20


@pytest.mark.parametrize("name", ["chat,turns=4", "agents,steps=4"])
def test_each_turn_begins_with_all_of_the_one_before(name: str) -> None:
    asks = generate(name, seed=1, seconds=300.0).asks
    first = [ask for ask in asks if len(ask.segments) == 2]
    for ask in first[:20]:
        turns = [other for other in asks if common(ask, other) == 2]
        assert [len(turn.segments) for turn in turns] == [2, 4, 6, 8][: len(turns)]
        assert all(common(one, other) == len(one.segments) for one, other in pairwise(turns))
        assert [turn.segments[-2][1] for turn in turns[1:]] == [turn.output for turn in turns[:-1]]


def test_settings_are_read_from_the_text_and_win() -> None:
    assert generate("siblings,siblings=3,qps=5", seed=1, qps=50.0) == generate(
        "siblings,siblings=3,qps=5", seed=1
    )
    assert settings_of("siblings")["siblings"] == 16


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing", "none of groups, chat"),
        ("", "none of groups, chat"),
        ("chat,color=3", "no setting 'color', only qps"),
        ("chat,turns", "turns must be a whole number"),
        ("hot,share=1.5", "share must be a number over 0 and up to 1, not '1.5'"),
        ("chat,qps=10000,seconds=10000", "qps x seconds must be up to 10000000, not 1e\\+08"),
        ("groups,groups=100000,questions=1000", "groups x questions must be up to 10000000"),
        ("chat,turns=2.5", "turns must be a whole number"),
        ("chat,qps=0", "qps must be a number"),
        ("chat,qps=nan", "qps must be a number"),
        ("chat,qps=-1", "qps must be a number"),
        ("chat,seconds=1e99", "seconds must be a number"),
        ("siblings,qps=0.001,seconds=0.1", "makes no requests"),
    ],
)
def test_a_workload_that_cannot_be_is_told_in_one_line(text: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=words) as error:
        generate(text, seed=1)
    assert "\n" not in str(error.value)


def test_all_requests_can_be_for_the_hot_key() -> None:
    asks = generate("hot,share=1", seed=1).asks
    assert {ask.segments[0][0] for ask in asks} == {0}
