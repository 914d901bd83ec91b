from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from router.proxy.upstream import Upstream
from tests.proxy.scripted import Worker, answer, plays
from tests.proxy.serving import Proxy, served

if TYPE_CHECKING:
    from router.proxy.asgi import Receive, Scope, Send

REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


async def test_the_head_goes_out_with_the_first_piece() -> None:
    body = plays(answer(b"body"))
    async with Worker.up(body) as worker, served(Proxy(Upstream(worker.url))) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(REQUEST)
            data = await reader.read(65536)
            assert data.startswith(b"HTTP/1.1 200 OK\r\n")
            assert data.endswith(b"\r\n\r\nbody")
        writer.close()


async def test_an_asgi_app_is_served_as_by_uvicorn() -> None:
    going = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["more_body"] is False
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await going.wait()
        await send({"type": "http.response.body", "body": b"body"})

    async with served(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        going.set()
        assert await reader.readexactly(4) == b"body"
        writer.close()
