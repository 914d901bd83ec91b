from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from router.proxy.body import BodyBudget, body_of
from router.proxy.disconnect import ClientGone, ClientWatch
from router.proxy.drive import Waiter, in_task
from tests.proxy.serving import served
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from router.proxy.cycle import Cycle, Handler


async def a_worker() -> None:
    await Waiter(asyncio.get_running_loop())


async def a_future() -> None:
    await asyncio.get_running_loop().create_future()


async def a_timer() -> None:
    await in_task()
    async with asyncio.timeout(60):
        await a_future()


async def a_worker_in_a_task() -> None:
    await in_task()
    await a_worker()


class Waiting:
    """An app that waits for ever, inside the watch, after what it is told to wait for before."""

    def __init__(self, wait: Callable[[], Awaitable[None]]) -> None:
        self._wait = wait
        self.ready = asyncio.Event()
        self.cycle: Cycle | None = None
        self.inside = False
        self.ended: list[BaseException] = []

    def handler(self, _method: bytes, _path: str) -> Handler:
        return self._serve

    async def _serve(self, cycle: Cycle) -> None:
        self.cycle = cycle
        await body_of(cycle, 10, BodyBudget())
        await self.ready.wait()
        try:
            with ClientWatch(cycle):
                self.inside = True
                await self._wait()
        except BaseException as error:  # noqa: BLE001 - a cancellation is looked at too
            self.ended.append(error)
            cycle.cut()


WAITS = pytest.mark.parametrize("wait", [a_worker, a_future, a_timer, a_worker_in_a_task])


@WAITS
@pytest.mark.parametrize("before", [False, True])
async def test_whatever_a_request_waits_for_ends_when_its_client_goes(
    wait: Callable[[], Awaitable[None]], caplog: pytest.LogCaptureFixture, *, before: bool
) -> None:
    app = Waiting(wait)
    async with served(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await until(lambda: app.cycle)
        if not before:
            app.ready.set()
            await until(lambda: app.inside)
        writer.close()
        await writer.wait_closed()
        assert app.cycle is not None
        cycle = app.cycle
        await until(lambda: cycle.disconnected)
        app.ready.set()
        await until(lambda: app.ended)
    assert [type(error) for error in app.ended] == [ClientGone]
    assert app.inside is not before
    assert not caplog.records


@WAITS
async def test_a_cancellation_by_the_server_passes_through(wait: Callable[[], Awaitable[None]]) -> None:
    app = Waiting(wait)
    app.ready.set()
    async with served(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await until(lambda: app.inside)
        assert app.cycle is not None
        app.cycle.drive.cancel()
        await until(lambda: app.ended)
        writer.close()
    assert [type(error) for error in app.ended] == [asyncio.CancelledError]


@WAITS
async def test_both_at_once_end_it_once(wait: Callable[[], Awaitable[None]]) -> None:
    app = Waiting(wait)
    app.ready.set()
    async with served(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await until(lambda: app.inside)
        assert app.cycle is not None
        app.cycle.drive.cancel()
        app.cycle.transport.abort()
        await until(lambda: app.ended)
        writer.close()
    assert len(app.ended) == 1
