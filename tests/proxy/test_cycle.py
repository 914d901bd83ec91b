from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from router.errors import UpstreamFailed
from tests.proxy.serving import served

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.proxy.asgi import Receive, Scope, Send
    from router.proxy.cycle import Cycle, Handler

POST = b"POST /v1 HTTP/1.1\r\nhost: a\r\n"


class Scripted:
    """Serves every path but /asgi with a function of the cycle."""

    def __init__(self, script: Callable[[Cycle], None]) -> None:
        self._script = script
        self.asked: list[tuple[bytes, str]] = []

    def handler(self, method: bytes, path: str) -> Handler | None:
        self.asked.append((method, path))
        return None if path == "/asgi" else self._serve

    async def _serve(self, cycle: Cycle) -> None:
        self._script(cycle)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["more_body"] is False
        path = scope["path"].encode()
        length = (b"content-length", b"%d" % len(path))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": path})


async def exchange(app: Scripted, wire: bytes) -> bytes:
    """Return everything that comes up to the end of the connection."""
    async with served(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wire)
        async with asyncio.timeout(10):
            data = await reader.read()
        writer.close()
    return data


def in_pieces(cycle: Cycle) -> None:
    cycle.begin(200, [(b"a", b"b")], b"one", more=True)
    cycle.write(b"")
    cycle.write(b"two")
    cycle.end(b"three")


async def test_an_answer_of_unknown_length_goes_out_in_chunks() -> None:
    data = await exchange(Scripted(in_pieces), POST + b"connection: close\r\n\r\n")
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"a: b",
        b"transfer-encoding: chunked",
        b"connection: close",
    ]
    assert body == b"3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"


async def test_a_client_of_http_1_0_gets_no_chunks_but_the_connections_end() -> None:
    data = await exchange(Scripted(in_pieces), b"POST /v1 HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert body == b"onetwothree"


async def test_an_answer_shorter_than_promised_breaks_the_connection() -> None:
    def script(cycle: Cycle) -> None:
        cycle.begin(200, [(b"content-length", b"9")], b"one", more=True)
        cycle.end(b"two")

    wire = POST + b"\r\n" + POST + b"\r\n"
    data = await exchange(Scripted(script), wire)
    assert data == b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nonetwo"


@pytest.mark.parametrize("value", [b"x\r\nset-cookie: evil", b"x\ny", b"x\ry", b"x\0y"])
async def test_a_field_that_would_split_a_line_is_refused_with_nothing_written(value: bytes) -> None:
    refused: list[UpstreamFailed] = []

    def script(cycle: Cycle) -> None:
        try:
            cycle.begin(200, [(b"a", value)], b"", more=False)
        except UpstreamFailed as failure:
            refused.append(failure)
            cycle.begin(502, [(b"content-length", b"0")], b"", more=False)

    data = await exchange(Scripted(script), POST + b"connection: close\r\n\r\n")
    assert data.startswith(b"HTTP/1.1 502 ")
    assert data.count(b"HTTP/1.1") == len(refused) == 1


async def test_a_path_is_compared_decoded_and_passed_on_as_it_came() -> None:
    targets: list[bytes] = []

    def script(cycle: Cycle) -> None:
        targets.append(cycle.target)
        cycle.begin(200, [(b"content-length", b"0")], b"", more=False)

    app = Scripted(script)
    wire = b"POST /v1/%6Fne?a=%20 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    assert (await exchange(app, wire)).startswith(b"HTTP/1.1 200 ")
    assert app.asked == [(b"POST", "/v1/one")]
    assert targets == [b"/v1/%6Fne?a=%20"]


async def test_requests_past_asgi_and_through_it_share_a_connection_in_order() -> None:
    def script(cycle: Cycle) -> None:
        cycle.begin(200, [(b"content-length", b"6")], b"direct", more=False)

    asgi = b"POST /asgi HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"
    wire = asgi + (POST + b"\r\n") * 300 + asgi + POST + b"connection: close\r\n\r\n"
    data = await exchange(Scripted(script), wire)
    bodies = [part.partition(b"\r\n\r\n")[2] for part in data.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [b"/asgi", *[b"direct"] * 300, b"/asgi", b"direct"]


async def test_a_client_of_http_1_0_can_tell_a_cut_from_the_end() -> None:
    def script(cycle: Cycle) -> None:
        cycle.begin(200, [], b"some", more=True)
        cycle.cut()

    with pytest.raises(ConnectionResetError):
        await exchange(Scripted(script), b"POST /v1 HTTP/1.0\r\n\r\n")
