from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from router.api.admission import Admission, Capacity
from router.errors import NoWorker, QueueFull
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
        ranks = await self.admission.enter(model, priority, self.ranks(), self.ranks)
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
    with pytest.raises(QueueFull):
        workers.admission.check("m", 0)
    workers.admission.check("m", 1)
    workers.admission.check("other", 0)
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
    stuck = asyncio.create_task(workers.admission.enter("gone", 9, lost, lambda: lost))
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

    stuck = asyncio.create_task(workers.admission.enter("m", 0, workers.ranks(), look))
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
