from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import httpx2
import pytest

from router.errors import HostNotAllowed
from tests.commands.running import command, environment
from tests.e2e.asking import rows
from tests.e2e.processes import both, router
from tests.e2e.scripted import engine
from tests.proxy.scripted import Peer, Worker, answer, plays
from tests.waiting import until_awaited

KEY = "sk-0123456789"
TLS = Path(__file__).parents[1] / "fixtures" / "tls"
PROMPT = {"model": "stand-in", "prompt": list(range(1, 100)), "max_tokens": 1}
OK = plays(answer(b"{}"))


async def test_every_worker_has_a_row_and_json_is_what_the_router_says() -> None:
    async with both(count=2) as (workers, front, client):
        busy = (await client.post("/v1/completions", json=PROMPT)).headers["x-kv-router-worker"]

        async def held() -> bool:
            return bool((await rows(client))[busy]["ranks"][0]["blocks"].get("GPU") == 6)

        await until_awaited(held, "six blocks")
        ended = await command("workers", "--url", front.url)
        assert (ended.code, ended.err) == (0, "")
        head, *lines = ended.out.splitlines()
        assert head.startswith("WORKER ")
        assert len(lines) == 2
        (line,) = (line for line in lines if line.startswith(busy.removeprefix("http://")))
        assert line.split()[1:8] == ["ready", "stand-in", "sglang", "0", "6", "GPU", "0.0%"]
        said = json.loads((await command("workers", "--json", KV_ROUTER_URL=front.url)).out)
        assert [row["url"] for row in said["workers"]] == [worker["url"] for worker in workers.workers]


async def test_output_that_cannot_be_written_is_one_line() -> None:
    async with router([], "--admin-key", "a-key-of-sixteen-characters") as front:
        full = os.open("/dev/full", os.O_WRONLY)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "router", "workers", "--url", front.url),
            stdout=full,
            stderr=asyncio.subprocess.PIPE,
            env=environment(),
        )
        os.close(full)
        _, err = await process.communicate()
        said = b"kv-router: the output cannot be written: No space left on device\n"
        assert (process.returncode, err) == (1, said)


async def test_a_key_is_sent_and_never_shown() -> None:
    async with router([], "--admin-key", "a-key-of-sixteen-characters", "--api-key", KEY) as front:
        for key in ("", "sk-another-one"):
            ended = await command("workers", "--url", front.url, KV_ROUTER_KEY=key)
            asked = f"kv-router: {front.url} asks for a valid key: give --key or KV_ROUTER_KEY\n"
            assert (ended.code, ended.out, ended.err) == (1, "", asked)
        assert (await command("workers", "--url", front.url, KV_ROUTER_KEY=KEY)).code == 0
        assert (await command("workers", "--url", front.url, "--key", KEY)).code == 0
        wrong = await command("workers", "--url", front.url, "--key", f"{KEY}\r\nx: y")
        assert (wrong.code, KEY in wrong.err) == (2, False)


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("http://127.0.0.1:1", 1, "http://127.0.0.1:1 takes no connection: is a router up there?"),
        ("127.0.0.1:8000", 2, "--url: expected http://host:port, got '127.0.0.1:8000'"),
        ("http://no.such.host.invalid", 1, "http://no.such.host.invalid takes no connection"),
    ],
)
async def test_what_cannot_be_asked_is_one_line(url: str, code: int, said: str) -> None:
    ended = await command("workers", "--url", url)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(f"kv-router: {said}")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"workers": 1}', b"\xff", b'{"workers": [{}]}'])
async def test_what_is_no_router_is_one_line(body: bytes) -> None:
    async with Worker.up(plays(answer(body))) as other:
        ended = await command("workers", "--url", other.url)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err == f"kv-router: {other.url} does not answer as a kv-router does\n"


async def test_a_name_cannot_steer_the_terminal() -> None:
    model = "evil\x1b[2J\x07\N{RIGHT-TO-LEFT OVERRIDE}name\x7f\x9b"

    async def hostile(peer: Peer) -> None:
        if peer.head.startswith(b"GET"):
            body = json.dumps({"model_path": model, "served_model_name": model, "tokenizer_path": "x"})
            await peer.send(answer(body.encode()))
        else:
            await engine(OK)(peer)

    async with Worker.up(hostile) as worker, router([worker.url]) as front:

        async def shown() -> bool:
            return "evil" in (await command("workers", "--url", front.url)).out

        await until_awaited(shown, "the worker has said who it is")
        for arguments in (("workers",), ("top", "--once")):
            out = (await command(*arguments, "--url", front.url)).out
            assert "evil\\x1b[2J\\x07\\u202ename\\x7f\\x9b" in out
            assert out.replace("\n", "").isprintable()
        out = (await command("workers", "--json", "--url", front.url)).out
        assert out.replace("\n", "").isprintable()
        assert json.loads(out)["workers"][0]["model"] == model
        async with httpx2.AsyncClient(base_url=front.url) as client:
            metrics = (await client.get("/metrics")).text
        assert "evil\\\\x1b[2J" in metrics
        assert metrics.replace("\n", "").isprintable()


async def test_a_refusal_cannot_steer_the_terminal() -> None:
    said = {"error": {"message": "no\x1b[2J\x7f\x9b"}}
    async with Worker.up(plays(answer(json.dumps(said).encode(), status=b"500 No"))) as other:
        ended = await command("workers", "--url", other.url)
    assert ended.err == f"kv-router: {other.url} answers 500: no\\x1b[2J\\x7f\\x9b\n"


async def test_whom_a_router_s_certificate_is_to_be_believed_from_is_said_and_can_be_named() -> None:
    async with router(
        [],
        "--admin-key",
        "a-key-of-sixteen-characters",
        "--tls-cert",
        str(TLS / "localhost.pem"),
        "--tls-key",
        str(TLS / "localhost.key"),
    ) as front:
        ended = await command("workers", "--url", front.url, SSL_CERT_FILE="")
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.startswith(f"kv-router: {front.url} has a certificate that is not believed (")
        assert ended.err.endswith("SSL_CERT_FILE names a file of who is\n")
        ended = await command("workers", "--url", front.url, SSL_CERT_FILE=str(TLS / "localhost.pem"))
        assert (ended.code, ended.err) == (0, "")
        ended = await command("workers", "--url", front.url.replace("https", "http"))
        assert (ended.code, ended.err) == (
            1,
            f"kv-router: {front.url.replace('https', 'http')} closes its connections\n",
        )


async def test_a_router_without_tls_is_not_asked_in_tls() -> None:
    async with router([], "--admin-key", "a-key-of-sixteen-characters") as front:
        url = front.url.replace("http", "https")
        ended = await command("workers", "--url", url)
        assert (ended.code, ended.err) == (1, f"kv-router: {url} does not speak TLS: is it http:// there?\n")


async def test_a_router_that_does_not_answer_to_a_name_is_to_be_asked_by_another() -> None:
    barred = plays(answer(HostNotAllowed("it is not").body(), status=b"403 Forbidden"))
    async with Worker.up(barred) as named:
        ended = await command("workers", "--url", named.url)
    expected = "does not answer to this name: ask by address, or give the router --allowed-host NAME"
    assert (ended.code, ended.err) == (1, f"kv-router: {named.url} {expected}\n")
