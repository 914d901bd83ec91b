"""The front as a whole process: TLS, who is believed, methods on every kind of route, errors, redirects."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import shutil
import signal
import ssl
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from router.proxy.limits import ClientLimits
from tests.e2e.processes import Running, joined, router
from tests.e2e.scripted import engine_up, posts
from tests.proxy.scripted import Worker, answer, plays
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.proxy.scripted import Script

FILES = Path(__file__).parents[1] / "fixtures" / "tls"
BODY = b'{"model": "stand-in", "prompt": [1, 2, 3]}'
OK = plays(answer(b"{}"))


@asynccontextmanager
async def front(
    *options: str, script: Script = OK, verify: ssl.SSLContext | bool = True
) -> AsyncIterator[tuple[Worker, Running, httpx2.AsyncClient]]:
    async with (
        engine_up(script) as worker,
        router([worker.url], *options) as process,
        httpx2.AsyncClient(base_url=process.url, verify=verify) as client,
    ):
        await joined(client, 1)
        yield worker, process, client


def trusting(name: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(FILES / f"{name}.pem"))


async def test_a_tls_handshake_may_take_no_longer_than_a_head() -> None:
    options = ("--tls-cert", str(FILES / "localhost.pem"), "--tls-key", str(FILES / "localhost.key"))
    async with front(*options, verify=trusting("localhost")) as (_, process, client):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(b"\x16\x03\x01\x02\x00\x01")  # a hello that does not go on
        async with asyncio.timeout(ClientLimits().head_seconds + 30):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        assert not any(b"Traceback" in line for line in process.log)


async def test_https_by_flag_with_a_certificate_that_can_be_replaced(tmp_path: Path) -> None:
    def put(name: str) -> None:
        shutil.copy(FILES / f"{name}.pem", tmp_path / "cert.pem")
        shutil.copy(FILES / f"{name}.key", tmp_path / "cert.key")

    put("localhost")
    options = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "cert.key"))
    async with front(*options, verify=trusting("localhost")) as (worker, process, client):
        assert process.url.startswith("https://127.0.0.1:")
        assert (await client.post("/v1/completions", content=BODY)).content == b"{}"
        assert b"x-forwarded-proto: https" in posts(worker)[0][0]
        put("other")
        process.process.send_signal(signal.SIGHUP)

        async def replaced() -> bool:
            async with httpx2.AsyncClient(base_url=process.url, verify=trusting("other")) as anew:
                try:
                    return (await anew.get("/health")).status_code == 200
                except httpx2.ConnectError:
                    return False

        await until_awaited(replaced, "the certificate was replaced")
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--tls-cert", "nowhere.pem"), "--tls-cert nowhere.pem: the file cannot be read"),
        (("--tls-key", "some.key"), "expected --tls-cert, too"),
        (("--tls-cert", str(FILES / "localhost.pem"), "--tls-key", str(FILES / "other.key")), "mismatch"),
        (("--api-keys", "nowhere"), "--api-keys: the file cannot be read"),
        (
            ("--api-key", "short"),
            "--api-key: expected 8 or more characters without spaces, got another value",
        ),
        (("--route-limit", "/v1/x,total=-1"), "total: expected seconds up to 86400"),
        (("--route-limit", "v1,total=1"), "path: expected one that begins with /"),
        (("--route-limit", "/v1/completions"), "setting: expected at least one of connect, first-byte"),
        (("--route-limit", "/workers,total=1"), "there is no route that workers answer"),
        (("--forwarded-allow", "10.0.0.1/8"), "--forwarded-allow: expected a range of addresses"),
    ],
)
async def test_what_is_wrong_is_one_line_at_the_start(options: tuple[str, ...], expected: str) -> None:
    with pytest.raises(AssertionError) as caught:
        async with router(["http://127.0.0.1:1"], *options):
            pass
    said = str(caught.value).strip()
    assert expected in said
    assert said.count("\n") <= 1
    assert "Traceback" not in said


async def test_only_proxies_that_are_trusted_are_believed() -> None:
    claims = {"x-forwarded-for": "1.1.1.1", "x-forwarded-proto": "https", "x-forwarded-host": "front"}
    for options, expected in (
        ((), [b"x-forwarded-for: 127.0.0.1", b"x-forwarded-proto: http"]),
        (("--forwarded-allow", "10.0.0.0/8"), [b"x-forwarded-for: 127.0.0.1", b"x-forwarded-proto: http"]),
        (
            ("--forwarded-allow", "10.0.0.0/8", "--forwarded-allow", "127.0.0.0/8"),
            [b"x-forwarded-for: 1.1.1.1, 127.0.0.1", b"x-forwarded-proto: https", b"x-forwarded-host: front"],
        ),
    ):
        async with front(*options) as (worker, _, client):
            await client.post("/v1/completions", content=BODY, headers=claims)
            lines = posts(worker)[0][0].split(b"\r\n")
            assert set(expected) <= set(lines)
            assert sum(line.startswith(b"x-forwarded-for") for line in lines) == 1


async def test_by_default_nobody_else_can_connect() -> None:
    async with front() as (_, process, _):
        assert process.url.startswith("http://127.0.0.1:")


METHODS = [
    ("GET", "/health", 200, None),
    ("HEAD", "/health", 200, None),
    ("HEAD", "/ready", 200, None),
    ("HEAD", "/v1/models", 200, None),
    ("HEAD", "/metrics", 200, None),
    ("POST", "/health", 405, "GET, HEAD"),
    ("OPTIONS", "/health", 405, "GET, HEAD"),
    ("TRACE", "/health", 405, "GET, HEAD"),
    ("DELETE", "/workers", 405, "GET, HEAD"),
    ("GET", "/v1/completions", 405, "POST"),
    ("HEAD", "/v1/completions", 405, "POST"),
    ("OPTIONS", "/v1/chat/completions", 405, "POST"),
    ("TRACE", "/v1/messages", 405, "POST"),
    ("PUT", "/generate", 405, "POST"),
    ("GET", "/tokenize", 405, "POST"),
    ("GET", "/explain", 405, "POST"),
    ("GET", "/nowhere", 404, None),
    ("HEAD", "/nowhere", 404, None),
    ("POST", "/nowhere", 404, None),
    ("TRACE", "/nowhere", 404, None),
    ("OPTIONS", "/nowhere", 404, None),
    ("GET", "/v1/unknown", 404, None),
    ("GET", "/health/", 404, None),
    ("GET", "//health", 404, None),
    ("POST", "/v1/load_lora_adapter", 404, None),
    ("POST", "/v1//load_lora_adapter", 404, None),
    ("POST", "/v1/./load_lora_adapter", 404, None),
    ("POST", "/v1/../pause", 404, None),
    ("POST", "/v1/%2e%2e/pause", 404, None),
    ("POST", "/v1/x%2f..%2f..%2fpause", 404, None),
    ("POST", "/v1/load_lora_adapter/", 404, None),
    ("POST", "/v1/%6coad_lora_adapter", 404, None),
    ("POST", "/v1/x;a=b", 404, None),
    ("POST", "/v1/x\\..\\pause", 404, None),
    ("POST", "/pause_generation", 404, None),
    ("POST", "/flush_cache", 404, None),
    ("POST", "/v1/", 404, None),
]


async def test_methods_on_every_kind_of_route() -> None:
    """Over a raw socket: a client library would tidy up some of these targets."""
    async with front() as (worker, _, client):
        port = client.base_url.port
        for method, target, status, allow in METHODS:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            length = "content-length: 2\r\n" if method in {"POST", "PUT"} else ""
            wire = f"{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{length}\r\n"
            writer.write(wire.encode() + (b"{}" if length else b""))
            data = await reader.read()
            writer.close()
            head, _, body = data.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status), (method, target, head)
            allowed = re.search(rb"\r\nallow: ([^\r]*)", head)
            assert (allowed and allowed[1].decode()) == allow, (method, target)
            assert (body == b"") is (method == "HEAD"), (method, target)
            if status != 200 and method != "HEAD":
                code = "method_not_allowed" if status == 405 else "no_route"
                assert f'"code":"{code}"'.encode() in body, (method, target)
                assert b'"type":"invalid_request_error"' in body
        assert not posts(worker)


async def test_a_head_says_what_a_get_would() -> None:
    async with front() as (_, _, client):
        for path in ("/health", "/ready", "/nowhere"):
            got, asked = await client.get(path), await client.head(path)
            assert asked.headers["content-length"] == got.headers["content-length"]
            assert asked.status_code == got.status_code


@pytest.mark.parametrize("status", [b"301 Moved", b"307 Temporary Redirect", b"308 Permanent Redirect"])
async def test_a_redirect_is_passed_on_and_not_followed(status: bytes) -> None:
    there = plays(answer(b"gone", b"location: http://169.254.169.254/secret", status=status))
    async with front(script=there) as (worker, _, client):
        got = await client.post("/v1/completions", content=BODY)
        assert got.status_code == int(status[:3])
        assert got.headers["location"] == "http://169.254.169.254/secret"
        assert got.content == b"gone"
        assert len(posts(worker)) == 1


@pytest.mark.parametrize("status", [b"400 Bad Request", b"404 Not Found", b"422 Odd", b"501 Not Here"])
async def test_a_workers_own_error_passes_unchanged(status: bytes) -> None:
    body = b'{"object":"error",  "message":"odd \\u00e9","type":"BadRequestError","code":400}\n'
    script = plays(answer(body, b"content-type: application/json", b"x-mine: 1", status=status))
    async with front(script=script) as (_, _, client):
        got = await client.post("/v1/completions", content=BODY)
        assert (got.status_code, got.content, got.headers["x-mine"]) == (int(status[:3]), body, "1")


@pytest.mark.parametrize(
    "field", [b"x: a\rset-cookie: evil=1", b"x: a\0b", b"x: a\nset-cookie: evil=1", b"x\r: a", b"x : a"]
)
async def test_a_worker_cannot_split_an_answer(field: bytes) -> None:
    async with front("--retries", "0", script=plays(answer(b"{}", field))) as (_, _, client):
        got = await client.post("/v1/completions", content=BODY)
        assert got.status_code == 502
        assert "set-cookie" not in got.headers
        assert got.json()["error"]["code"] == "worker_failed"


async def test_a_request_id_cannot_split_an_answer() -> None:
    async with front() as (_, _, client):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        for end in (b"\r", b"\n", b"\0", b"\r\n x"):
            wire = (
                b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nx-request-id: a"
                + end
                + b"set-cookie: b\r\n\r\n"
            )
            reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
            writer.write(wire)
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()


@pytest.mark.parametrize("path", ["/explain", "/admin/workers", "/admin/fleet/pause", "/v1/completions"])
@pytest.mark.parametrize(
    "rest", [b"content-length: 100\r\n\r\n{", b"transfer-encoding: chunked\r\n\r\nZZ\r\n"]
)
async def test_a_client_that_leaves_within_its_body_leaves_nothing_in_the_log(path: str, rest: bytes) -> None:
    key = "a-key-of-sixteen-characters"
    async with front("--admin-key", key) as (_, process, client):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(f"POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\n".encode() + rest)
        writer.write_eof()
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        process.process.send_signal(signal.SIGTERM)
        await process.process.wait()
        await until(lambda: any(b"stopping" in line for line in process.log))
    assert not [line for line in process.log if b"ERROR" in line or b"Traceback" in line]


async def test_the_document_lists_every_route() -> None:
    async with front("--admin-key", "a-key-of-sixteen-characters") as (_, _, client):
        paths = (await client.get("/openapi.json")).json()["paths"]
    expected = {"/health", "/ready", "/metrics", "/workers", "/explain", "/v1/models", "/admin/weight_sync"}
    expected |= {"/v1/completions", "/v1/chat/completions", "/generate", "/v1/responses", "/v1/messages"}
    assert expected <= set(paths)
    assert all(paths[path]["post"]["requestBody"]["required"] for path in ("/v1/completions", "/explain"))


async def test_as_many_files_may_be_open_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        async with router([], "--admin-key", "a-key-of-sixteen-characters") as front:
            assert resource.prlimit(front.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
