"""Replays of records made in miniature: what differs is found, what cannot be read is one line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pytest

from router.cli import main
from router.records import entries
from router.records.format import RecordError
from router.records.replay import replay, shown
from router.records.revived import policy_of
from tests.records.made import batch, live, part, prompt, ranked, session, stored, write

if TYPE_CHECKING:
    from pathlib import Path

    from router.records.differences import Difference
    from router.records.entries import Entry

HELD = list(range(20))


def choice(request: int, rank: int, cached: int, predicted: int = 0, *draws: float) -> entries.Chosen:
    return entries.Chosen(
        2.0, request, "kv", 0, rank, cached, predicted, len(HELD) - cached - predicted, list(draws)
    )


def row(rank: int, blocks: dict[str, int], seq: int | None, predicted: int = 0) -> entries.Row:
    return entries.Row(rank, "live", seq, blocks, predicted, 0, {}, 0, 0)


def small() -> list[Entry]:
    """Two ranks, one of which holds the prompt of the first request; the second goes after its prediction."""
    return [
        *(entry for rank in (0, 1) for entry in (ranked(rank), entries.Opened(rank, False))),
        live(0, 0, batch(stored([9], range(100, 104)), ts=0.5), at_once=False),
        entries.Applied(0, 0.5),
        live(1, 0, batch(stored([1, 2, 3, 4], range(16)), ts=0.5), at_once=False),
        entries.Applied(1, 0.5),
        entries.Ranks(0, [0, 1]),
        prompt(0, HELD),
        choice(0, 1, 16),
        entries.Sent(2.0, 0, 1, -1, False),
        entries.Computed(2.5, 0),
        entries.Started(2.5, 0),
        entries.Reported(3.0, 0, 20, 16),
        entries.Over(3.0, 0, True),
        entries.Ended(3.0, 0, 200, ""),
        entries.Views(3.5, [row(0, {"GPU": 1}, 0), row(1, {"GPU": 4}, 0, 1)], True),
    ]


def test_a_record_of_what_the_core_does_is_all_as_recorded(tmp_path: Path) -> None:
    write(tmp_path, *small())
    (found,) = replay(str(tmp_path), [])
    assert found.differences == []
    assert (found.batches, found.decisions, found.rows, found.ended) == (2, 1, 2, True)
    assert [one.blocks for one in found.views] == [{"GPU": 1}, {"GPU": 4}]
    assert "all as recorded" in shown([found], as_json=False)


def changed(of: type, **fields: object) -> list[Entry]:
    return [_replaced(entry, fields) if isinstance(entry, of) else entry for entry in small()]


def _replaced(entry: Entry, fields: dict[str, object]) -> Entry:
    return msgspec.structs.replace(entry, **fields)


def without_tries(made: list[Entry]) -> list[Entry]:
    kinds = (entries.Sent, entries.Computed, entries.Over, entries.Views)
    return [entry for entry in made if not isinstance(entry, kinds)]


@pytest.mark.parametrize(
    ("made", "where", "recorded", "rerun"),
    [
        (
            without_tries(changed(entries.Chosen, rank=0, cached_tokens=0, uncached_tokens=20)),
            "request r0: rank",
            0,
            1,
        ),
        (changed(entries.Chosen, cached_tokens=12, uncached_tokens=16), "cached_tokens", 12, 16),
        (changed(entries.Views, rows=[row(1, {"GPU": 5}, 0, 1)]), "view of http://w1 rank 0: blocks", 5, 4),
    ],
)
def test_what_differs_is_told(
    tmp_path: Path, made: list[Entry], where: str, recorded: int, rerun: int
) -> None:
    write(tmp_path, *made)
    (found,) = replay(str(tmp_path), [])
    assert found.different == len(found.differences) > 0
    first = found.differences[0]
    assert where in first.where
    assert str(recorded) in str(first.recorded)
    assert str(rerun) in str(first.rerun)


def test_a_batch_that_is_missing_shows(tmp_path: Path) -> None:
    lost = live(1, 0, batch(stored([1, 2, 3, 4], range(16)), ts=0.5), at_once=False)
    write(tmp_path, *(entry for entry in small() if entry != lost))
    (found,) = replay(str(tmp_path), [])
    assert any("batch of 0.5" in one.where for one in found.differences)
    assert any(one.where == "request r0: cached_tokens" for one in found.differences)


def test_ties_are_drawn_as_recorded(tmp_path: Path) -> None:
    others = list(range(200, 220))
    for drawn in (0, 1):
        ranks = (ranked(0), ranked(1), entries.Ranks(0, [0, 1]))
        write(tmp_path, *ranks, prompt(0, others), choice(0, drawn, 0, 0, drawn))
        (found,) = replay(str(tmp_path), [])
        assert found.differences == []


def more() -> list[Entry]:
    """Both ranks are seen to have room for more than a prompt."""
    return [live(rank, 1, batch(stored(range(20, 30), range(500, 540)))) for rank in (0, 1)]


@pytest.mark.parametrize("policy", ["session", "prefix_hash", "own.module:function"])
def test_choices_by_what_is_not_in_the_record_are_followed(tmp_path: Path, policy: str) -> None:
    made = changed(entries.Chosen, policy=policy)
    begun = msgspec.structs.replace(session(), policy=policy)
    (tmp_path / "s-00000.kvr").write_bytes(part([begun, *made]))
    (found,) = replay(str(tmp_path), ["kv"])
    assert found.differences == []
    assert found.policies[-1].policy == "kv"
    other = [_replaced(entry, {"rank": 0}) if isinstance(entry, entries.Chosen) else entry for entry in made]
    assert replay_of(tmp_path, begun, without_tries(other))[0].where == "request r0: cached_tokens"


def replay_of(directory: Path, begun: entries.Session, made: list[Entry]) -> list[Difference]:
    (directory / "s-00000.kvr").write_bytes(part([begun, *made]))
    return replay(str(directory), [])[0].differences


def test_what_others_say_of_the_load_counts(tmp_path: Path) -> None:
    """The rank that holds the prompt is loaded by strangers, as its engine says, then is not any more."""
    said: list[Entry] = [entries.EngineAsked(1), entries.EngineSaid(1, 50_000, 20, 0.5, 1000)]
    made = small()
    made[9:9] = said
    write(tmp_path, *without_tries(made))
    (found,) = replay(str(tmp_path), [])
    assert [one.where for one in found.differences] == ["request r0: rank"]
    made[11:11] = [entries.PeersSaid(1, 5, 1), entries.PeersSaid(1, 0, 0), entries.EngineForgotten(1)]
    write(tmp_path, *made)
    (found,) = replay(str(tmp_path), [])
    assert found.differences == []


def test_a_rank_goes_on_with_the_load_of_the_one_that_it_replaces(tmp_path: Path) -> None:
    """A rank that has a request is replaced, which the view's row of the new one shows until its end."""
    made = small()
    over = next(at for at, entry in enumerate(made) if isinstance(entry, entries.Over))
    loaded = msgspec.structs.replace(row(2, {}, None), state="", active_requests=1)
    other = msgspec.structs.replace(ranked(2), worker="http://w1")
    change: list[Entry] = [entries.Gone(1), other, entries.Inherited(1, 2), entries.EngineForgotten(2)]
    change.append(entries.Views(2.2, [loaded], False))
    rest = [entry for entry in made[over:] if isinstance(entry, entries.Over | entries.Ended)]
    free = entries.Views(2.3, [msgspec.structs.replace(loaded, active_requests=0)], True)
    write(tmp_path, *made[:over], *change, *rest, free)
    (found,) = replay(str(tmp_path), ["kv"])
    assert found.differences == []


def test_policies_are_judged_on_the_same_traffic(tmp_path: Path) -> None:
    made = [*small()[:9], *more()]
    for request in range(20):
        made += [
            prompt(request, HELD),
            choice(request, 1, 16),
            entries.Sent(2.0 + request, request, 1, -1, False),
            entries.Computed(2.1 + request, request),
            entries.Over(2.2 + request, request, True),
            entries.Ended(2.2 + request, request, 200, ""),
        ]
    write(tmp_path, *made)
    (found,) = replay(str(tmp_path), ["round_robin", "kv"])
    kv, alternating = found.policies
    assert [kv.policy, alternating.policy] == ["kv", "round_robin"]
    assert kv.requests == alternating.requests == 20
    # One rank computes the prompt once and keeps it; alternating, both do.
    assert kv.uncached_tokens == 20 + 19 * 4
    assert alternating.uncached_tokens == 2 * 20 + 18 * 4
    assert (kv.spread, alternating.spread) == (2.0, 1.0)
    assert kv.cached_share > alternating.cached_share
    assert "round_robin" in shown([found], as_json=False)


def test_a_judged_rank_is_emptied_when_its_cache_was(tmp_path: Path) -> None:
    def traffic(request: int) -> list[Entry]:
        return [
            prompt(request, HELD),
            choice(request, 1, 16),
            entries.Sent(2.0, request, 1, -1, False),
            entries.Over(2.2, request, True),
        ]

    made = [*small()[:9], *more(), *traffic(0), entries.Reset(2.3, 1, "flush"), *traffic(1)]
    write(tmp_path, *made)
    (found,) = replay(str(tmp_path), ["kv"])
    assert found.policies[0].uncached_tokens == 40


def test_weights_that_were_read_again_hold_from_then_on(tmp_path: Path) -> None:
    """Rank 0 runs a request; whether its prefix or its load weighs more is a matter of weights."""
    events = live(0, 0, batch(stored([1, 2, 3, 4], range(16)), ts=0.5), at_once=False)
    opened = entries.Opened(0, False)
    first: list[Entry] = [ranked(0), ranked(1), opened, events, entries.Applied(0, 0.5)]
    asked: list[Entry] = [
        entries.Ranks(0, [0, 1]),
        prompt(0, HELD),
        choice(0, 0, 16),
        entries.Sent(2.0, 0, 0, -1, False),
        prompt(1, HELD),
        choice(1, 1, 0),
    ]
    heavy = entries.Weighed(1.0, {"uncached": 100.0, "active": 1.0})
    write(
        tmp_path,
        *first,
        heavy,
        *asked[:4],
        entries.Weighed(2.5, {"uncached": 1.0, "active": 512.0}),
        *asked[4:],
    )
    (found,) = replay(str(tmp_path), ["kv"])
    assert found.differences == []
    write(tmp_path, *first, heavy, *asked)
    (found,) = replay(str(tmp_path), [])
    assert [one.where for one in found.differences] == ["request r1: rank"]


def test_a_record_without_its_beginning_is_not_compared(tmp_path: Path) -> None:
    made = changed(entries.Chosen, cached_tokens=12)
    (tmp_path / "s-00001.kvr").write_bytes(part([session(1), *made]))
    (found,) = replay(str(tmp_path), ["kv"])
    assert not found.whole
    assert found.different == 0
    assert found.notes == ["parts 0 to 0 have been deleted: nothing can be compared"]
    assert found.policies[0].requests == 1


@pytest.mark.parametrize(
    "wrong",
    [
        [entries.Applied(7, 0.5)],
        [entries.Ranks(0, [5]), prompt(0, HELD), choice(0, 1, 0)],
        [ranked(0), entries.Sent(1.0, 3, 0, -1, False)],
        [ranked(0), entries.Ranks(0, []), prompt(0, HELD), choice(0, 0, 0)],
        [ranked(0), entries.Opened(0, True), entries.Ranked(1, "u", 0, "m", -3, False, False, 1.0, -1)],
        [msgspec.structs.replace(prompt(0, HELD), blocks=[entries.Blocks(2**40, False, b"x" * 800)])],
        [msgspec.structs.replace(prompt(0, HELD), blocks=[entries.Blocks(0, False, b"x" * 8)])],
    ],
)
def test_entries_that_do_not_fit_together_are_one_line(tmp_path: Path, wrong: list[Entry]) -> None:
    write(tmp_path, *wrong)
    try:
        replay(str(tmp_path), ["kv"])
    except RecordError as error:
        line = error.message
        assert "does not fit" in line
        assert "\n" not in line
        return
    assert isinstance(wrong[-1], entries.Ranked)


@dataclass(slots=True)
class Command:
    """Runs commands; what they have printed is taken from the process."""

    printed: pytest.CaptureFixture[str]

    def run(self, *arguments: str) -> tuple[int | str | None, str, str]:
        """Return exit code, stdout and stderr."""
        with pytest.raises(SystemExit) as left:
            main(arguments)
        said = self.printed.readouterr()
        return left.value.code, said.out, said.err


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_the_command_says_by_its_exit_code_whether_anything_differs(tmp_path: Path, command: Command) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for directory, made in ((good, small()), (bad, changed(entries.Chosen, cached_tokens=12))):
        directory.mkdir()
        write(directory, *made)
    code, out, _ = command.run("replay", str(good), "--json")
    assert code == 0
    (found,) = json.loads(out)["sessions"]
    assert (found["different"], found["decisions"]) == (0, 1)
    code, out, _ = command.run("replay", str(bad))
    assert code == 1
    assert "request r0: cached_tokens: recorded 12, now 16" in out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no record"),
        (b"GIF89a", "s-00000.kvr: not a record of kv-router"),
        (b"kv-router record 2\n", "format 2, this kv-router reads format 1"),
        (part([ranked(0)]), "it does not begin with its session"),
        (b"", "it is cut before its first entry"),
    ],
)
def test_what_is_no_record_is_one_line_and_exit_code_2(
    tmp_path: Path, command: Command, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "s-00000.kvr").write_bytes(content)
    code, out, err = command.run("replay", str(tmp_path))
    assert (code, out) == (2, "")
    assert err.startswith("kv-router: ")
    assert err.count("\n") == 1
    assert said in err


def test_an_unknown_policy_and_a_missing_directory_are_told(tmp_path: Path, command: Command) -> None:
    write(tmp_path, *small())
    for arguments in ((str(tmp_path), "--policy", "best"), (str(tmp_path / "none"),)):
        code, _, err = command.run("replay", *arguments)
        assert code == 2
        assert err.count("\n") == 1


def test_a_policy_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(RecordError, match=r"^there is no policy best; expected one of kv, round_robin, "):
        policy_of("best")
