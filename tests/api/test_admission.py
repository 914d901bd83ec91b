from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

import pytest

from router.api.admission import Admission, Capacity, priority
from router.errors import BadRequest, NoWorker, QueueFull
from router.observe.histogram import Histogram
from tests.waiting import until

if TYPE_CHECKING:
    from router.core.rank import Rank


class Workers:
    """Names for ranks, and how many requests each has under way."""

    def __init__(self, capacity: Capacity, *names: str) -> None:
        self.active = dict.fromkeys(names, 0)
        self.waits = Histogram((1.0,))
        self.admission = Admission(capacity, lambda rank: self.active[cast("str", rank)], self.waits)
        self.done: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def ranks(self) -> list[Rank]:
        return cast("list[Rank]", list(self.active))

    async def _ask(self, name: str, model: str, priority: int) -> None:
        admission = self.admission
        ranks = admission.take(model, self.ranks()) or await admission.wait(model, priority, self.ranks)
        self.active[cast("str", ranks[0])] += 1
        self.done.append(name)

    async def ask(self, *names: str, model: str = "m", priority: int = 0) -> None:
        """Let requests come, one after the other."""
        for name in names:
            self.tasks.append(asyncio.create_task(self._ask(name, model, priority)))
            await asyncio.sleep(0)

    def end(self, rank: str) -> None:
        """Let a request that is under way at a rank end."""
        self.active[rank] -= 1
        self.admission.leave()

    async def settled(self, *names: str) -> None:
        """Wait until these, in this order, have been admitted; then nobody else is."""
        await until(lambda: len(self.done) >= len(names))
        await asyncio.sleep(0)
        assert self.done == list(names)


async def test_without_limits_nobody_waits() -> None:
    workers = Workers(Capacity(), "w")
    await workers.ask(*"abcdef")
    await workers.settled(*"abcdef")
    assert workers.admission.under_way == 6
    assert not workers.admission.waiting


async def test_what_is_over_the_limit_waits_for_an_end_in_order_of_arrival() -> None:
    workers = Workers(Capacity(in_all=2), "w")
    await workers.ask(*"abcd")
    await workers.settled(*"ab")
    assert workers.admission.waiting == 2
    workers.end("w")
    await workers.settled(*"abc")
    workers.end("w")
    await workers.settled(*"abcd")
    assert sum(workers.waits.counts) == 2


async def test_a_worker_at_its_limit_gets_nothing_while_another_can_take_it() -> None:
    workers = Workers(Capacity(per_worker=1), "v", "w")
    await workers.ask(*"abc")
    await workers.settled(*"ab")
    assert workers.active == {"v": 1, "w": 1}
    workers.end("w")
    await workers.settled(*"abc")
    assert workers.active == {"v": 1, "w": 1}


async def test_priority_goes_first() -> None:
    workers = Workers(Capacity(in_all=1), "w")
    await workers.ask("a", "b")
    await workers.ask("c", priority=1)
    workers.end("w")
    await workers.settled("a", "c")
    workers.end("w")
    await workers.settled("a", "c", "b")


async def test_who_finds_the_line_full_is_refused_at_once_or_takes_the_place_of_a_lower_priority() -> None:
    workers = Workers(Capacity(in_all=1, waiting=1), "w")
    await workers.ask("a", "b", "c")
    for wish, model, refused in ((b"0", "m", True), (b"1", "m", False), (b"0", "other", False)):
        check = workers.admission.check([(b"x-kv-router-priority", wish)])
        assert check is not None
        with pytest.raises(QueueFull) if refused else contextlib.nullcontext():
            check(model)
    with pytest.raises(QueueFull, match="too many requests wait"):
        await workers.tasks[2]
    await workers.ask("d", priority=1)
    with pytest.raises(QueueFull, match="higher priority"):
        await workers.tasks[1]
    workers.end("w")
    await workers.settled("a", "d")
    assert workers.admission.refused == {"full": 2, "timeout": 0, "ousted": 1}


async def test_nobody_waits_longer_than_the_limit() -> None:
    workers = Workers(Capacity(in_all=1, seconds=0.01), "w")
    await workers.ask("a", "b")
    with pytest.raises(QueueFull, match="in time"):
        await workers.tasks[1]
    assert not workers.admission.waiting
    workers.end("w")
    assert workers.admission.under_way == 0


async def test_one_who_leaves_the_line_gives_nothing_away() -> None:
    workers = Workers(Capacity(in_all=1), "w")
    await workers.ask(*"abc")
    workers.tasks[1].cancel()
    await until(lambda: workers.admission.waiting == 1)
    workers.end("w")
    await workers.settled("a", "c")


async def test_one_who_leaves_with_room_in_hand_passes_it_on() -> None:
    workers = Workers(Capacity(in_all=1), "w")
    await workers.ask(*"abc")
    workers.end("w")  # the room is b's, who has not gone on yet
    workers.tasks[1].cancel()
    await workers.settled("a", "c")
    workers.end("w")
    assert workers.admission.under_way == 0


async def test_room_for_one_model_is_not_held_up_by_another_that_has_none() -> None:
    workers = Workers(Capacity(in_all=2), "w")
    await workers.ask("a", "b")
    lost: list[Rank] = []
    assert workers.admission.take("gone", lost) is None
    stuck = asyncio.create_task(workers.admission.wait("gone", 9, lambda: lost))
    await asyncio.sleep(0)
    await workers.ask("c")
    workers.end("w")
    await workers.settled("a", "b", "c")
    stuck.cancel()


async def test_what_has_become_impossible_is_told_to_who_waits_and_nobody_else() -> None:
    workers = Workers(Capacity(in_all=1), "w")
    await workers.ask("a")

    def look() -> list[Rank]:
        raise NoWorker("gone")

    stuck = asyncio.create_task(workers.admission.wait("m", 0, look))
    await asyncio.sleep(0)
    await workers.ask("b")
    workers.end("w")
    with pytest.raises(NoWorker):
        await stuck
    await workers.settled("a", "b")


async def test_a_change_of_the_fleet_lets_as_many_go_as_there_is_room_for() -> None:
    workers = Workers(Capacity(per_worker=2), "w")
    await workers.ask(*"abcdef")
    await workers.settled("a", "b")
    workers.active["v"] = 0
    workers.admission.advance()
    await workers.settled(*"abcd")
    assert workers.active == {"v": 2, "w": 2}
    assert workers.admission.waiting == 2


@pytest.mark.parametrize(("value", "expected"), [(b"0", 0), (b"7", 7), (b"-12", -12)])
def test_a_priority_is_a_whole_number(value: bytes, expected: int) -> None:
    assert priority([(b"a", b"9"), (b"x-kv-router-priority", value)]) == expected


@pytest.mark.parametrize("value", [b"", b"high", b"1.5", b"1000", b"+1", b" 1"])
def test_what_is_no_priority_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(BadRequest, match="x-kv-router-priority: expected a whole number"):
        priority([(b"x-kv-router-priority", value)])


def test_without_a_priority_it_is_nought() -> None:
    assert priority([]) == 0


async def test_room_that_several_ends_leave_at_once_is_given_to_no_more_than_it_is_for() -> None:
    workers = Workers(Capacity(per_worker=2), "v", "w")
    await workers.ask(*"abcdefgh")
    await workers.settled(*"abcd")
    for rank in ("v", "v", "w"):
        workers.end(rank)
    await workers.ask("late")
    await workers.settled(*"abcdefg")
    assert workers.active == {"v": 2, "w": 2}
    assert workers.admission.waiting == 2


async def test_what_goes_to_a_pair_is_counted_in_all() -> None:
    workers = Workers(Capacity(in_all=2), "w")
    assert workers.admission.take_place("m")
    await workers.ask("a")
    pair = asyncio.create_task(workers.admission.wait("m", 0, workers.ranks))
    await asyncio.sleep(0)
    assert not workers.admission.take_place("m")
    workers.admission.leave()
    assert len(await pair) == 1


async def test_who_waits_when_all_are_paused_is_held_for_the_pause_and_then_told_of_it() -> None:
    workers = Workers(Capacity(in_all=1, seconds=0.01, paused_seconds=0.01), "w")
    await workers.ask("a")
    paused = True
    with pytest.raises(NoWorker, match="paused"):
        await workers.admission.wait("m", 0, workers.ranks, lambda: paused)
    held = asyncio.create_task(workers.admission.wait("m", 0, workers.ranks, lambda: paused))
    paused = False
    with pytest.raises(QueueFull, match="in time"):
        await held


async def test_who_waits_for_a_pause_goes_on_when_it_ends() -> None:
    workers = Workers(Capacity(in_all=1, seconds=0.0, paused_seconds=60.0), "w")
    await workers.ask("a")
    looks: list[None] = []

    def paused() -> bool:
        looks.append(None)
        return True

    held = asyncio.create_task(workers.admission.wait("m", 0, workers.ranks, paused))
    await until(lambda: looks)
    assert not held.done()
    workers.end("w")
    assert await held == workers.ranks()


def test_a_priority_that_is_none_is_refused_also_where_nobody_waits() -> None:
    with pytest.raises(BadRequest, match="x-kv-router-priority"):
        asyncio.run(_checked())


async def _checked() -> None:
    Workers(Capacity(), "w").admission.check([(b"x-kv-router-priority", b"high")])
