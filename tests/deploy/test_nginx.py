"""Debian's nginx in front of routers: TLS, several of them, and nothing in the way of a stream."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import ssl
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from router.config import Config
from tests.deploy.programs import program
from tests.e2e.processes import joined, router
from tests.e2e.scripted import engine_up, in_two_pieces, posts
from tests.proxy.scripted import OK, Peer, Worker, answer, plays
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
CONF = ROOT / "deploy" / "nginx" / "kv-router.conf"
TLS = ROOT / "tests" / "fixtures" / "tls"
BODY = b'{"model": "stand-in", "prompt": [1, 2, 3]}'
# What the package's own nginx.conf has around it, with everything in a directory of the test's.
AROUND = """
daemon off;
worker_processes 1;
user root;
pid {0}/pid;
error_log {0}/error.log;
events {{}}
http {{
    client_body_temp_path {0}/body;
    proxy_temp_path {0}/proxy;
    fastcgi_temp_path {0}/fastcgi;
    uwsgi_temp_path {0}/uwsgi;
    scgi_temp_path {0}/scgi;
    include {0}/kv-router.conf;
}}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write(directory: Path, port: int, urls: list[str]) -> Path:
    """Write the configuration as it is shipped, with this machine's ports, paths and routers."""
    text, servers = CONF.read_text(), iter(url.partition("://")[2] for url in urls)
    text = text.replace("listen 443", f"listen 127.0.0.1:{port}")
    text = text.replace("/etc/nginx/tls/kv-router", str(TLS / "localhost"))
    text, count = re.subn(r"127\.0\.0\.1:800\d", lambda _: next(servers), text)
    assert count == len(urls)
    (directory / "kv-router.conf").write_text(text)
    (directory / "nginx.conf").write_text(AROUND.format(directory))
    return directory / "nginx.conf"


@asynccontextmanager
async def nginx(directory: Path, *urls: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Run nginx in front of two routers; give a client that trusts its certificate."""
    port = free_port()
    conf = write(directory, port, list(urls))
    process = await asyncio.create_subprocess_exec(
        program("nginx"), "-c", str(conf), "-p", str(directory), "-e", str(directory / "error.log")
    )
    trusting = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
    try:
        async with httpx2.AsyncClient(base_url=f"https://localhost:{port}", verify=trusting) as client:

            async def listens() -> bool:
                assert process.returncode is None, (directory / "error.log").read_text()
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    return False
                writer.close()
                return True

            await until_awaited(listens, "nginx listens")
            yield client
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def test_tokens_come_as_they_are_made_and_the_worker_learns_who_asks(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async with (
        engine_up(in_two_pieces(go_on)) as worker,
        router([worker.url], "--forwarded-allow", "127.0.0.0/8") as one,
        httpx2.AsyncClient(base_url=one.url) as direct,
        nginx(tmp_path, one.url, one.url) as client,
    ):
        await joined(direct, 1)
        claims = {"x-forwarded-for": "10.1.1.1", "x-request-id": "mine"}
        async with client.stream("POST", "/v1/completions", content=BODY, headers=claims) as response:
            pieces = response.aiter_raw()
            assert await anext(pieces) == b"data: 1"
            go_on.set()
            assert b"".join([piece async for piece in pieces]) == b"data: 2"
        assert response.headers["x-request-id"] == "mine"
        lines = posts(worker)[0][0].lower().split(b"\r\n")
        assert b"x-forwarded-for: 10.1.1.1, 127.0.0.1, 127.0.0.1" in lines
        assert b"x-forwarded-proto: https" in lines
        assert b"x-forwarded-host: localhost" in lines


async def test_a_client_that_hangs_up_ends_its_request_at_the_worker(tmp_path: Path) -> None:
    async def endless(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
        await peer.until_gone()
        gone.set()

    gone = asyncio.Event()
    async with (
        engine_up(endless) as worker,
        router([worker.url]) as one,
        httpx2.AsyncClient(base_url=one.url) as direct,
        nginx(tmp_path, one.url, one.url) as client,
    ):
        await joined(direct, 1)
        async with client.stream("POST", "/v1/completions", content=BODY) as response:
            await anext(response.aiter_raw())
        await until(gone.is_set, "the worker's connection is closed")


async def test_a_router_that_is_down_is_passed_over(tmp_path: Path) -> None:
    async with Worker.up(OK) as up, nginx(tmp_path, "http://127.0.0.1:1", up.url) as client:
        for _ in range(4):
            assert (await client.post("/v1/completions", content=BODY)).content == b"ok"


@pytest.mark.parametrize(("path", "body"), [("/v1/completions", BODY), ("/v1/abort", None)])
async def test_what_a_router_had_is_never_sent_again_with_a_body_or_without(
    tmp_path: Path, path: str, body: bytes | None
) -> None:
    async def breaks(peer: Peer) -> None:
        peer.abort()

    async with (
        Worker.up(breaks) as one,
        Worker.up(breaks) as two,
        nginx(tmp_path, one.url, two.url) as client,
    ):
        assert (await client.post(path, content=body)).status_code == 502
        assert len(one.requests) + len(two.requests) == 1


async def test_what_a_router_has_answered_is_the_answer_also_where_there_is_no_body(tmp_path: Path) -> None:
    """With a body nothing could be sent again; without one nginx would, if it were told to."""

    async def refuses(peer: Peer) -> None:
        await peer.send(answer(b"no", status=statuses.pop()))

    every = (b"500 A", b"502 A", b"503 A", b"504 A", b"429 A", b"403 A", b"404 A")
    statuses = [status for status in every for _ in range(2)]
    async with (
        Worker.up(refuses) as one,
        Worker.up(refuses) as two,
        nginx(tmp_path, one.url, two.url) as client,
    ):
        for status in reversed(every):
            for method in ("GET", "POST"):
                answered = await client.request(method, "/v1/models")
                assert (answered.status_code, answered.content) == (int(status[:3]), b"no")
        assert len(one.requests) + len(two.requests) == 2 * len(every)


def test_how_long_an_answer_may_take_is_left_to_the_routers_which_set_no_limit() -> None:
    config = Config(workers=())
    assert (config.first_byte_seconds, config.idle_seconds) == (0, 0)
    found = dict(re.findall(r"^ *proxy_(read|send)_timeout (\w+);$", CONF.read_text(), re.MULTILINE))
    assert found == {"read": "1d", "send": "1d"}


async def test_answers_that_ask_for_patience_and_large_bodies_pass(tmp_path: Path) -> None:
    busy = plays(answer(b"later", b"retry-after: 7", status=b"429 Too Many Requests"))
    async with Worker.up(busy) as one, nginx(tmp_path, one.url, one.url) as client:
        answered = await client.post("/v1/completions", content=BODY + b" " * 8_000_000)
        assert (answered.status_code, answered.headers["retry-after"]) == (429, "7")
        assert len(one.requests) == 1


async def test_what_operators_look_at_is_not_for_clients(tmp_path: Path) -> None:
    async with Worker.up(OK) as up, nginx(tmp_path, up.url, up.url) as client:
        for path in (
            "/",
            "/page/page.css",
            "/watch",
            "/workers",
            "/explain",
            "/metrics",
            "/admin/fleet/pause",
        ):
            assert (await client.get(path)).status_code == 404
        assert (await client.get("/v1/models")).status_code == 200
        assert (await client.get("/ready")).status_code == 200
