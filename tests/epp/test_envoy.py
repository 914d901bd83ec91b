"""A real Envoy in front of workers, and the router beside it."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.deploy.programs import beside
from tests.e2e.processes import fleet, joined, router
from tests.e2e.scripted import engine_up, in_two_pieces
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any


CONF = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"
PROMPT = [index % 250 + 1 for index in range(200)]
BODY = {"model": "stand-in", "prompt": PROMPT, "max_tokens": 4}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write(directory: Path, port: int, epp: int, mode: str) -> Path:
    """Write the configuration as it is shipped, with this machine's ports."""
    text = CONF.read_text().replace(
        "address: 0.0.0.0, port_value: 8080", f"address: 127.0.0.1, port_value: {port}"
    )
    text = text.replace("port_value: 9002", f"port_value: {epp}").replace("FULL_DUPLEX_STREAMED", mode, 1)
    if mode != "FULL_DUPLEX_STREAMED":
        text = text.replace("FULL_DUPLEX_STREAMED", "STREAMED")
    path = directory / "envoy.yaml"
    path.write_text(text)
    return path


@asynccontextmanager
async def envoy(directory: Path, epp: int, mode: str) -> AsyncIterator[httpx2.AsyncClient]:
    port = free_port()
    conf = write(directory, port, epp, mode)
    log = (directory / "envoy.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        beside("envoy"),
        "--config-path",
        str(conf),
        "--disable-hot-restart",
        "--concurrency",
        "1",
        "--log-level",
        "warning",
        stderr=log,
        stdout=log,
    )
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:

            async def answers() -> bool:
                assert process.returncode is None, (directory / "envoy.log").read_text()
                try:
                    answer = await client.get("/v1/models")
                except httpx2.TransportError:
                    return False
                return bool(answer.status_code == 200)

            await until_awaited(answers, "Envoy answers")
            yield client
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()
        log.close()


@asynccontextmanager
async def behind_envoy(
    directory: Path, mode: str = "FULL_DUPLEX_STREAMED", *options: str
) -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.AsyncClient, list[str]]]:
    """Run two workers, a router that picks, and Envoy; give clients of Envoy and of the router."""
    epp = free_port()
    async with fleet(count=2) as workers:
        urls = [worker["url"] for worker in workers.workers]
        async with (
            router(urls, "--epp-port", str(epp), *options) as front,
            httpx2.AsyncClient(base_url=front.url, timeout=30.0) as control,
        ):
            await joined(control, 2)
            async with envoy(directory, epp, mode) as client:
                yield client, control, urls


async def rows(control: httpx2.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await control.get("/workers")).json()["workers"]
    return found


@pytest.mark.parametrize("mode", ["FULL_DUPLEX_STREAMED", "BUFFERED"])
async def test_requests_go_where_their_blocks_are(tmp_path: Path, mode: str) -> None:
    async with behind_envoy(tmp_path, mode) as (client, control, urls):
        first = await client.post("/v1/completions", json=BODY)
        assert first.status_code == 200, first.text
        where = first.headers["x-kv-router-worker"]
        assert where in urls

        async def held() -> bool:
            (row,) = [row for row in await rows(control) if row["url"] == where]
            return bool(row["ranks"][0]["blocks"].get("GPU"))

        await until_awaited(held, "its blocks are known")
        for _ in range(3):
            again = await client.post("/v1/completions", json=BODY)
            assert again.headers["x-kv-router-worker"] == where
            assert int(again.headers["x-kv-router-overlap-tokens"]) > 100
            assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 100
        assert sum(row["inflight_requests"] for row in await rows(control)) == 0


async def test_tokens_come_as_they_are_made_and_count_until_the_end(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    epp = free_port()
    async with (
        engine_up(in_two_pieces(go_on)) as worker,
        router([worker.url], "--epp-port", str(epp)) as front,
        httpx2.AsyncClient(base_url=front.url, timeout=30.0) as control,
    ):
        await joined(control, 1)

        async def inflight() -> int:
            return sum(row["inflight_requests"] for row in await rows(control))

        async def over() -> bool:
            return await inflight() == 0

        async with envoy(tmp_path, epp, "FULL_DUPLEX_STREAMED") as client:
            async with client.stream("POST", "/v1/completions", json=BODY) as response:
                pieces = response.aiter_raw()
                assert await anext(pieces) == b"data: 1"
                assert await inflight() == 1
                go_on.set()
                assert b"".join([piece async for piece in pieces]) == b"data: 2"
            await until_awaited(over, "nothing is in flight")


async def test_the_routers_own_answers_reach_the_client(tmp_path: Path) -> None:
    async with behind_envoy(tmp_path) as (client, *_):
        unknown = await client.post("/v1/completions", json=BODY | {"model": "other"})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
