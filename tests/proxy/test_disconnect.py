from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from router.proxy.body import read_body
from router.proxy.disconnect import ClientGone, ClientWatch
from tests.proxy.serving import PROTOCOLS, served
from tests.waiting import until

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    from router.proxy.asgi import Message, Receive, Scope, Send


class Waiting:
    """An app that waits for ever, inside the watch, after what it is told to wait for before."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.begun = False
        self.ended: list[BaseException] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive, 10)
        self.begun = True
        await self.ready.wait()
        try:
            with ClientWatch(scope, receive):
                await asyncio.Event().wait()
        except ClientGone as gone:
            self.ended.append(gone)
            await send({"type": "http.response.start", "status": 500})  # nobody hears it


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("before", [False, True])
async def test_whatever_a_request_waits_for_ends_when_its_client_goes(
    protocol: type[HttpToolsProtocol], *, before: bool
) -> None:
    app = Waiting()
    async with served(app, protocol) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        await until(lambda: app.begun)
        if not before:
            app.ready.set()
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.01)
        app.ready.set()
        await until(lambda: app.ended)


async def silent() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_cancellation_from_elsewhere_passes_through() -> None:
    async def serve() -> None:
        with ClientWatch({}, silent):
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_both_at_once_is_a_cancellation() -> None:
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def serve() -> None:
        with ClientWatch({}, receive):
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    left.set()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_block_that_ends_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    with ClientWatch({}, silent) as watch:
        await asyncio.sleep(0)
    assert not watch.gone
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
