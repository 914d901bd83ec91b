"""The parent's part: one order for all, nobody serves from what no longer holds, nothing counted is lost."""

from __future__ import annotations

import asyncio
import signal
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import msgspec

from router.fleet.effects import EFFECT, Added, Begun, Drained, Effect, Ended, Removed
from router.fleet.spec import parse_worker
from router.observe.figures import Figure, Figures
from router.share.exchange import Exchange
from router.share.line import Line
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from router.share.member import Member

REQUESTS = "kv_router_retries_total"
FOLLOWED = msgspec.msgpack.Decoder(tuple[str, Effect])


@dataclass(eq=False)
class Process:
    """One process as the parent sees it; it follows unless `hangs`."""

    line: Line
    member: Member
    told: list[signal.Signals]
    followed: list[Effect] = field(default_factory=list)
    hangs: bool = False
    counted: float = 0.0
    asked: int = 0
    continued: list[str] = field(default_factory=list)
    vacant: list[int] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)

    async def answer(self, what: str, body: msgspec.Raw) -> Any:
        if self.hangs:
            await asyncio.Event().wait()
        if what == "follow":
            self.followed.append(FOLLOWED.decode(body)[1])
            return 1
        if what == "vacant":
            self.vacant = msgspec.msgpack.decode(body)
        if what == "continue":
            self.continued += msgspec.msgpack.decode(body)
        if what == "alive":
            self.asked += 1
        return figures(self.counted) if what == "figures" else self.workers

    async def ask(self, what: str, body: Any = None) -> Any:
        return msgspec.msgpack.decode(await self.line.ask(what, body, seconds=30))


def figures(count: float) -> Figures:
    return {REQUESTS: [Figure((), count)], "kv_router_processes": [Figure((), 1.0)]}


class Router:
    """An exchange and its processes."""

    def __init__(self) -> None:
        self.exchange = Exchange(follow_seconds=0.2, show_seconds=0.2, look_seconds=0.02)
        self.tasks: list[asyncio.Task[None]] = []
        self.processes: list[Process] = []

    async def start(self, index: int, *, joins: bool = True) -> Process:
        ours, theirs = socket.socketpair()
        told: list[signal.Signals] = []
        member = self.exchange.member(index, f"sender-{index}", told.append)
        member.line = Line(*await asyncio.open_connection(sock=ours), member.answer)
        reader, writer = await asyncio.open_connection(sock=theirs)
        process = Process(Line(reader, writer, self._answer(index)), member, told)
        self.processes.append(process)
        self.tasks += [asyncio.create_task(self._run(member)), asyncio.create_task(process.line.run())]
        if joins:
            await process.ask("join")
        return process

    def _answer(self, at: int) -> Any:
        async def answer(what: str, body: msgspec.Raw) -> Any:
            (process,) = [each for each in self.processes if each.member.index == at]
            return await process.answer(what, body)

        return answer

    async def _run(self, member: Member) -> None:
        assert member.line is not None
        await member.line.run()
        self.exchange.gone(member)

    async def end(self, process: Process) -> None:
        """Let a process end."""
        restarts = self.exchange.restarts
        process.line.close()
        await until(lambda: self.exchange.restarts > restarts)
        self.processes.remove(process)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            process.line.close()
        await asyncio.gather(*self.tasks)


def added(url: str) -> Added:
    return Added(parse_worker(url), "127.0.0.1")


async def test_a_change_reaches_all_and_those_that_come_later() -> None:
    async with Router() as router:
        one, two = await router.start(0), await router.start(1)
        assert await one.ask("change", added("http://b:1")) == 2
        assert await two.ask("change", Drained("http://b:1", on=True)) == 2
        assert one.followed == two.followed == [added("http://b:1"), Drained("http://b:1", on=True)]
        late = await router.start(2, joins=False)
        raw = await late.line.ask("join", seconds=30)
        effects = msgspec.msgpack.decode(raw, type=list[Effect])
        assert effects == [added("http://b:1"), Drained("http://b:1", on=True)]


async def test_one_who_has_not_joined_is_not_waited_for() -> None:
    async with Router() as router:
        one = await router.start(0)
        other = await router.start(1, joins=False)
        assert await one.ask("change", added("http://b:1")) == 1
        assert other.followed == []


async def test_a_worker_is_added_once_however_it_is_spelled() -> None:
    async with Router() as router:
        one, two = await router.start(0), await router.start(1)
        answers = await asyncio.gather(
            one.ask("change", added("http://b:1")), two.ask("change", added("http://b:1/"))
        )
        assert sorted(answers, key=str) == [2, None]


async def test_who_starts_later_removes_what_the_operator_has_removed_unless_it_has_come_back() -> None:
    async with Router() as router:
        one = await router.start(0)
        for url in ("http://a:1", "http://b:1"):
            assert await one.ask("change", Removed(url, 300.0)) == 1
        one.workers.append("http://a:1")
        for place in (1, 2):
            late = await router.start(place, joins=False)
            raw = await late.line.ask("join", seconds=30)
            assert msgspec.msgpack.decode(raw, type=list[Effect]) == [Removed("http://b:1", 0.0)]


async def test_a_worker_on_its_way_out_cannot_be_added() -> None:
    async with Router() as router:
        one, two = await router.start(0), await router.start(1)
        two.hangs = True
        removal = asyncio.create_task(one.ask("change", Removed("http://a:1", 0.0)))
        await until(lambda: one.followed)
        assert await one.ask("change", added("http://a:1")) is None
        assert await removal == 1
        two.hangs = False
        assert await one.ask("change", added("http://a:1")) == 2


async def test_effects_of_a_call_reach_the_others_only() -> None:
    async with Router() as router:
        one, two = await router.start(0), await router.start(1)
        effect = Drained("http://a:1", on=True)
        assert await one.ask("tell", effect) == 1
        assert (one.followed, two.followed) == ([], [effect])
        assert EFFECT.decode(msgspec.msgpack.encode(effect)) == effect


async def test_one_who_does_not_follow_is_ended() -> None:
    async with Router() as router:
        one, two = await router.start(0), await router.start(1)
        two.hangs = True
        assert await one.ask("tell", Drained("http://a:1", on=True)) == 0
        assert (one.told, two.told) == ([], [signal.SIGKILL])


async def test_counters_do_not_go_back_when_a_process_is_silent_or_dies() -> None:
    async with Router() as router:
        one, two = await router.start(0), await router.start(1)
        one.counted, two.counted = 5.0, 7.0

        async def seen() -> tuple[float, float]:
            found = await one.ask("figures", figures(one.counted))
            return found[REQUESTS][0][1], found["kv_router_processes"][0][1]

        assert await seen() == (12.0, 2.0)
        two.hangs = True
        assert await seen() == (12.0, 1.0)
        two.hangs = False
        await router.end(two)
        assert await seen() == (12.0, 1.0)
        three = await router.start(1)
        three.counted = 1.0
        assert await seen() == (13.0, 2.0)
        assert (router.exchange.restarts, router.exchange.silences) == (1, 1)


async def test_one_weight_sync_runs_at_a_time_and_ends_with_its_process() -> None:
    async with Router() as router:
        one, two = await router.start(0), await router.start(1)
        assert await one.ask("sync", True) is True
        assert await two.ask("sync", True) is False
        await two.ask("sync", False)  # it has none
        assert await two.ask("sync", True) is False
        await router.end(one)
        assert await two.ask("sync", True) is True


async def test_who_is_starting_is_told_to_read_its_files_again_once_it_can_hear() -> None:
    async with Router() as router:
        one, two = await router.start(0), await router.start(1, joins=False)
        router.exchange.reload()
        assert (one.told, two.told) == ([signal.SIGHUP], [])
        await two.ask("join")
        assert two.told == [signal.SIGHUP]
        three = await router.start(2)
        assert three.told == []


async def test_who_gives_no_sign_of_life_is_ended_and_nobody_else() -> None:
    async with Router() as router:
        one, two = await router.start(0), await router.start(1)
        starting = await router.start(2, joins=False)
        starting.hangs = two.hangs = True
        watch = asyncio.create_task(router.exchange.watch())
        await until(lambda: two.told)
        watch.cancel()
        assert one.asked >= 5
        assert (one.told, two.told, starting.told) == ([], [signal.SIGKILL], [])


async def test_all_are_told_where_nobody_serves() -> None:
    async with Router() as router:
        one, two, three = [await router.start(place) for place in range(3)]
        for process in (one, two):
            await process.ask("serves")
        await router.end(two)
        await until(lambda: one.vacant == three.vacant == [1])
        await router.end(three)  # it never served, so that nobody connects there
        again = await router.start(1)
        await until(lambda: again.vacant == [1])
        await again.ask("serves")
        await until(lambda: one.vacant == [])


def paused(url: str) -> Begun:
    return Begun("1", url, "pause")


async def test_what_a_sync_has_paused_is_continued_by_another_when_its_process_dies() -> None:
    async with Router() as router:
        one, two = await router.start(0), await router.start(1)
        assert await one.ask("sync", True) is True
        for url in ("http://a:1", "http://b:1", "http://c:1"):
            await one.ask("tell", paused(url))
        await one.ask("tell", Ended("1", "http://a:1", "pause", answered=True, ok=False, cleared=False))
        await one.ask("tell", Ended("2", "http://b:1", "continue", answered=True, ok=True, cleared=False))
        await two.ask("tell", paused("http://d:1"))  # a trainer's own, no sync
        await router.end(one)
        await until(lambda: two.continued)
        assert two.continued == ["http://c:1"]

        async def can_sync() -> bool:
            return bool(await two.ask("sync", True))

        await until_awaited(can_sync)


async def test_what_nobody_is_there_to_continue_the_next_one_does() -> None:
    async with Router() as router:
        one, two = await router.start(0), await router.start(1)
        await one.ask("sync", True)
        await one.ask("tell", paused("http://a:1"))
        two.hangs = True
        await router.end(one)
        await router.end(two)
        three = await router.start(0)
        await until(lambda: three.continued == ["http://a:1"])
