"""GET /watch in one process: what it costs, whom it leaves alone, and whom it cuts off."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from router.api.door import Door
from router.api.keys import ClientLimits, Keyring
from router.api.watch import MOST_WATCHERS, PATH, Watch
from router.observe.decisions import Decision, Decisions
from router.observe.resets import Resets, note
from router.observe.ring import Ring
from router.observe.seen import Seen, Totals
from tests.proxy.serving import served
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.observe.story import Observer
    from router.proxy.cycle import Handler

ASKED = f"GET {PATH} HTTP/1.1\r\nhost: a\r\n".encode()
KEY = b"sk-0123456789"


class App:
    """Nothing but the route, and what it was asked to do."""

    def __init__(self, *, door: Door | None = None, size: int = 0, seconds: float = 0.01) -> None:
        self.reads = 0
        self.size = size
        self.broken = False
        self.decisions = Decisions()
        self.resets: Resets = Ring(512)
        self.observers: list[Observer] = []
        self.attach, self.detach = self.observers.append, self.observers.remove
        self.watch = Watch(self.read, self.decisions, self.resets, door, self, seconds=seconds)

    def handler(self, _method: bytes, _path: str) -> Handler:
        return self.watch.serve

    async def read(self) -> Seen:
        self.reads += 1
        if self.broken:
            raise ValueError("broken")
        return Seen(self.reads, "1" * self.size, "kv", Totals(0, 0, 0, 0, 0), [])


class Watcher:
    """One client of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = b""

    @classmethod
    async def of(cls, port: int, *fields: bytes) -> Watcher:
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the kernel is to take little for it
        end.setblocking(False)
        await asyncio.get_running_loop().sock_connect(end, ("127.0.0.1", port))
        self = cls(*await asyncio.open_connection(sock=end, limit=2**26))
        self.writer.write(b"".join((ASKED, *(field + b"\r\n" for field in fields), b"\r\n")))
        self.head = await self.reader.readuntil(b"\r\n\r\n")
        return self

    async def event(self) -> dict[str, Any]:
        """Return the next."""
        while True:
            text = await self.reader.readuntil(b"\n\n")
            if b"data: " in text:
                event: dict[str, Any] = json.loads(text[text.index(b"data: ") + 6 :])
                return event

    def rest(self) -> None:
        """Read nothing any more; `go_on` ends it."""
        transport(self.writer).pause_reading()

    def go_on(self) -> None:
        transport(self.writer).resume_reading()

    async def ended(self) -> bytes:
        """Return all that still comes of the stream."""
        return await self.reader.readuntil(b"\r\n0\r\n\r\n")


def transport(writer: asyncio.StreamWriter) -> asyncio.Transport:
    assert isinstance(writer.transport, asyncio.Transport)
    return writer.transport


@asynccontextmanager
async def up(app: App) -> AsyncIterator[int]:
    async with served(app) as port:
        yield port
        app.watch.close()


async def test_a_snapshot_is_made_once_however_many_watch() -> None:
    app = App()
    async with up(app) as port:
        watchers = [await Watcher.of(port) for _ in range(5)]
        for watcher in watchers:
            while (event := await watcher.event())["time"] < 20:
                pass
            assert event["time"] == 20
        assert all(watcher.head.startswith(b"HTTP/1.1 200 ") for watcher in watchers)
        assert b"content-type: text/event-stream" in watchers[0].head


async def test_nothing_is_done_when_nobody_watches() -> None:
    app = App()
    async with up(app) as port:
        assert (app.reads, app.observers) == (0, [])
        watchers = [await Watcher.of(port) for _ in range(2)]
        await watchers[0].event()
        assert app.observers == [app.decisions.observe]
        before = len(asyncio.all_tasks())
        for watcher in watchers:
            watcher.writer.close()
        await until(lambda: not app.observers, "nobody watches")
        await until(lambda: len(asyncio.all_tasks()) < before, "the task has ended")


async def test_who_comes_and_goes_makes_no_more_snapshots() -> None:
    app = App(seconds=30.0)
    async with up(app) as port:
        first = await Watcher.of(port)
        await first.event()
        first.writer.close()
        await until(lambda: not app.observers)
        for _ in range(20):
            watcher = await Watcher.of(port)
            watcher.writer.close()
            await until(lambda: not app.observers)
        assert app.reads == 1


async def test_so_many_can_watch_and_no_more() -> None:
    app = App()
    async with up(app) as port:
        watchers = [await Watcher.of(port) for _ in range(MOST_WATCHERS)]
        refused = await Watcher.of(port)
        assert refused.head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: " in refused.head
        watchers[0].writer.close()

        async def taken() -> bool:
            return (await Watcher.of(port)).head.startswith(b"HTTP/1.1 200 ")

        while not await taken():
            pass


async def test_who_reads_nothing_holds_nobody_back_and_is_cut() -> None:
    app = App(size=1 << 18)
    async with up(app) as port:
        slow, quick = await Watcher.of(port), await Watcher.of(port)
        slow.rest()
        cycles, states = list(app.watch._watchers), list(app.watch._watchers.values())
        while len(app.watch._watchers) > 1:
            await quick.event()
            assert max(state.missed for state in states) <= 30, "it should have been cut"
            held = max(cycle.transport.get_write_buffer_size() for cycle in cycles)
            assert held < 4 * app.size
        slow.go_on()
        with pytest.raises(ConnectionResetError):
            await slow.reader.read()
        await quick.event()


async def test_who_missed_some_is_told_everything_again() -> None:
    app = App(size=1 << 18)
    note(app.resets, "http://a", 0, "restart")
    async with up(app) as port:
        watcher = await Watcher.of(port)
        first = await watcher.event()
        assert first["whole"]
        assert [one["cause"] for one in first["resets"]] == ["restart"]
        watcher.rest()
        (state,) = app.watch._watchers.values()
        await until(lambda: state.missed, "one was missed")
        watcher.go_on()
        note(app.resets, "http://a", 0, "silent")
        while not (event := await watcher.event())["whole"]:
            assert event["resets"] == []
        assert [one["cause"] for one in event["resets"]] == ["restart", "silent"]


async def test_what_is_new_is_told_once() -> None:
    app = App()
    async with up(app) as port:
        watcher = await Watcher.of(port)
        await watcher.event()
        app.decisions.ring.append(Decision(1.0, "id", "m", 1, "kv", "http://a", 0, 1, []))
        told = []
        while app.reads < 30:
            told += (await watcher.event())["decisions"]
        assert [one["id"] for one in told] == ["id"]
        late = await Watcher.of(port)
        assert [one["id"] for one in (await late.event())["decisions"]] == ["id"]


async def test_a_key_that_is_taken_away_ends_the_stream() -> None:
    ring = Keyring()
    ring.hold({sha256(KEY).digest(): ("a", ClientLimits())})
    app = App(door=Door(ring, lambda: 0.0, metrics_need_key=False))
    async with up(app) as port:
        stranger = await Watcher.of(port)
        assert stranger.head.startswith(b"HTTP/1.1 401 ")
        watcher = await Watcher.of(port, b"authorization: Bearer " + KEY)
        await watcher.event()
        ring.hold({})
        await watcher.ended()
        assert not app.observers


async def test_a_snapshot_that_fails_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    app = App()
    async with up(app) as port:
        watcher = await Watcher.of(port)
        await watcher.event()
        app.broken = True
        await until(lambda: "could not be shown" in caplog.text, "it failed")
        app.broken = False
        await watcher.event()


async def test_all_streams_end_with_the_router_and_none_begins() -> None:
    app = App()
    async with up(app) as port:
        watcher = await Watcher.of(port)
        await watcher.event()
        app.watch.close()
        await watcher.ended()
        late = await Watcher.of(port)
        assert late.head.startswith(b"HTTP/1.1 503 ")
