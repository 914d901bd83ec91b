from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.engine.playbook import Playbook, replayed, resident
from workers.engine import control
from workers.engine.dialect import SGLANG, VLLM
from workers.engine.namespace import Namespace

if TYPE_CHECKING:
    from workers.engine.request import Request

_prompts = st.builds(
    lambda head, length, tail: [*([head] * length), *tail],
    st.integers(0, 2),
    st.integers(1, 40),
    st.lists(st.integers(0, 3), max_size=12),
)
_requests = st.tuples(
    st.just("request"), _prompts, st.integers(1, 30), st.sampled_from([None, "salt"]), st.integers(0, 6)
)
_steps = st.one_of(
    _requests,
    st.tuples(st.just("pause"), st.sampled_from(["abort", "retract", "in_place"])),
    st.tuples(st.sampled_from(["resume", "flush", "settle", "abort"])),
)


def _apply(play: Playbook, requests: list[Request], step: tuple[Any, ...]) -> None:
    match step:
        case ("request", prompt, max_new, salt, iterations):
            requests.append(play.request(prompt, max_new, Namespace(cache_salt=salt)))
            for _ in range(iterations):
                play.iterate()
        case ("pause", mode):
            play.pause(mode)
        case ("resume",):
            play.resume()
        case ("flush",):
            play.flush()
        case ("settle",):
            play.settle()
        case ("abort",):
            play.complete()
            for request in requests[-1:]:
                control.abort(play.rank, request)


def _check_accounts(play: Playbook) -> None:
    cache = play.rank.cache
    assert cache.free >= 0
    assert 0 <= cache.evictable <= cache.resident
    assert cache.resident == len(set(cache.hashes()))


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(_steps, max_size=25),
    page_size=st.sampled_from([1, 4, 16]),
    engine=st.sampled_from([SGLANG, VLLM]),
    paused_loop=st.sampled_from(["legacy", "publishing"]),
    chunk=st.sampled_from([16, 48, 8192]),
    bigram=st.booleans(),
)
def test_replaying_all_published_events_gives_exactly_the_resident_blocks(
    steps: list[tuple[Any, ...]], page_size: int, engine: Any, paused_loop: Any, chunk: int, bigram: bool
) -> None:
    play = Playbook(
        page_size=page_size,
        capacity_tokens=160,
        dialect=engine,
        paused_loop=paused_loop,
        chunk_tokens=chunk,
        bigram=bigram,
    )
    requests: list[Request] = []
    for step in steps:
        _apply(play, requests, step)
        _check_accounts(play)
    play.resume()
    play.settle()
    play.run([7])
    assert all(request.finish for request in requests)
    assert replayed(play.events()) == resident(play.rank)
    assert (play.rank.cache.private, play.rank.promised) == (0, 0)
    assert play.rank.cache.evictable == play.rank.cache.resident
