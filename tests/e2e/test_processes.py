"""`--processes`: several processes on one port are one router, also while they die and come back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.e2e.asking import Got, ask, rows
from tests.e2e.processes import Running, both, fleet, joined, router
from tests.e2e.scripted import engine_up
from tests.proxy.scripted import answer, plays
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.proxy.scripted import Peer

EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
KEY = "a-key-of-sixteen-characters"
BEARER = {"authorization": f"Bearer {KEY}"}
TWO = ("--processes", "2")
ADMIN = (*TWO, "--admin-key", KEY, "--worker-allow", "127.0.0.0/8")
# Of so many connections both processes have some, but for one run in two million.
MANY = 20
PROMPT = list(range(1, 100))
BODY = {"model": "stand-in", "prompt": PROMPT}


def children(front: Running) -> list[int]:
    """Return the processes that a router consists of, beside the parent."""
    listed = Path(f"/proc/{front.process.pid}/task/{front.process.pid}/children").read_text()
    return [int(pid) for pid in listed.split()]


def lives(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


def client_of(front: Running) -> httpx2.AsyncClient:
    """Return a client with a connection of its own for each request."""
    limits = httpx2.Limits(max_keepalive_connections=0)
    return httpx2.AsyncClient(base_url=front.url, timeout=30.0, limits=limits)


async def everywhere(front: Running, method: str, path: str, **fields: Any) -> list[httpx2.Response]:
    """Ask over so many connections that both processes have been asked."""
    async with client_of(front) as client:
        return await asyncio.gather(*(client.request(method, path, **fields) for _ in range(MANY)))


async def explained(front: Running, field: str) -> set[int]:
    """Return the sums of one field over the candidates, as all processes explain them."""
    answers = await everywhere(front, "POST", "/explain", json=BODY)
    return {sum(_number(row[field]) for row in each.json()["candidates"]) for each in answers}


def _number(value: Any) -> int:
    return sum(value.values()) if isinstance(value, dict) else int(value)


async def counted(client: httpx2.AsyncClient, metric: str) -> float:
    """Return a metric's value, summed over its labels."""
    text = (await client.get("/metrics")).text
    return sum(
        float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(rf"{metric}[ {{]", line)
    )


async def stream(front: Running, **fields: Any) -> asyncio.Task[Got]:
    """Begin a stream; return it once its first byte is there."""
    begun = asyncio.Event()
    task = asyncio.create_task(ask(front.url, begun.set, **fields))
    await begun.wait()
    return task


async def all_up(client: httpx2.AsyncClient, count: int = 2) -> None:
    """Wait until all processes take part; they take connections a moment later."""

    async def are_all() -> bool:
        return await counted(client, "kv_router_processes") == count

    await until_awaited(are_all, f"{count} processes")


async def test_processes_count_load_and_flush_as_one() -> None:
    async with both("--profile", "fast", count=2, router_options=ADMIN) as (_, front, client):
        await all_up(client)
        assert len(children(front)) == 2
        got = await everywhere(front, "POST", "/v1/completions", json=BODY | {"max_tokens": 1})
        assert {each.status_code for each in got} == {200}
        assert await counted(client, "kv_router_requests_total") == MANY
        for each in await everywhere(front, "GET", "/metrics"):
            assert "kv_router_processes 2.0" in each.text
            assert (
                f'requests_total{{model="stand-in",route="/v1/completions",status_class="2xx"}} {MANY}.0'
                in each.text
            )

        streams = [await stream(front, prompt=[7], max_tokens=100_000) for _ in range(4)]
        await until_awaited(lambda: sees(front, 4), "the load to be seen by all")
        assert sum(row["inflight_requests"] for row in (await rows(client)).values()) == 4
        assert await counted(client, "kv_router_inflight_requests") == 4
        for task in streams:
            task.cancel()
        await until_awaited(lambda: sees(front, 0), "the load to be gone")

        async def warm() -> bool:
            return 0 not in await explained(front, "overlap_tokens")

        await until_awaited(warm, "the prompt to be held")
        flushed = await client.post("/admin/fleet/flush", headers=BEARER)
        assert flushed.json()["ok"], flushed.text
        assert await explained(front, "overlap_tokens") == {0}
        front.process.send_signal(signal.SIGTERM)
        assert await front.process.wait() == 0


async def sees(front: Running, requests: int) -> bool:
    """Whether every process knows of so many requests, its own and those of others."""
    return await explained(front, "active_requests") == {requests}


async def test_a_process_that_is_killed_comes_back_and_knows_the_fleet() -> None:
    async with fleet(count=1) as more, both(count=2, router_options=ADMIN) as (workers, front, client):
        added = more.workers[0]["url"]
        await all_up(client)
        gone, kept = (worker["url"] for worker in workers.workers)
        assert (await client.post("/admin/workers", content=added, headers=BEARER)).status_code == 201
        assert (await client.post("/admin/workers", content=added, headers=BEARER)).status_code == 409
        assert (await client.delete(f"/admin/workers/{gone}", headers=BEARER)).status_code == 200
        assert (await client.post(f"/admin/workers/{kept}/drain", headers=BEARER)).status_code == 200
        await everywhere(front, "POST", "/v1/completions", json=BODY | {"max_tokens": 1})
        before = await counted(client, "kv_router_requests_total")
        assert before == MANY

        async def known() -> set[tuple[str, bool]]:
            answers = await everywhere(front, "POST", "/explain", json=BODY)
            candidates = [row for each in answers for row in each.json()["candidates"]]
            return {(row["worker"], row["eligible"]) for row in candidates}

        assert await known() == {(kept, False), (added, True)}
        killed = children(front)[0]
        os.kill(killed, signal.SIGKILL)
        await until(lambda: not lives(killed))
        # Who connects meanwhile waits for the one that follows.
        answers = await everywhere(front, "POST", "/v1/completions", json=BODY | {"max_tokens": 1})
        assert {each.status_code for each in answers} == {200}
        assert await known() == {(kept, False), (added, True)}
        assert len(children(front)) == 2
        assert killed not in children(front)
        async with httpx2.AsyncClient(base_url=front.url) as fresh:
            assert await counted(fresh, "kv_router_process_restarts_total") == 1
            assert await counted(fresh, "kv_router_requests_total") == before + MANY


class Held:
    """A worker whose answers end once `gate` is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def answer(self, peer: Peer) -> None:
        """Send all of a stream but its end, and that later."""
        await peer.send(EVENTS + _chunk(b"data: 1\n\n"))
        await self.gate.wait()
        await peer.send(_chunk(b"data: [DONE]\n\n") + _chunk(b""))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def streaming(*options: str) -> AsyncIterator[tuple[Running, Held, list[asyncio.Task[Got]]]]:
    """Run two processes that have four streams under way."""
    held = Held()
    async with engine_up(held.answer) as worker, router([worker.url], *options) as front:
        async with httpx2.AsyncClient(base_url=front.url, timeout=30.0) as client:
            await joined(client, 1)
            await all_up(client)
        yield front, held, [await stream(front) for _ in range(4)]


async def ends(told: Callable[[Running], None], expected: int) -> None:
    """Have a router end while it streams; the streams end well."""
    async with streaming(*TWO) as (front, held, streams):
        pids = children(front)
        told(front)
        await until_awaited(lambda: is_refused(front.url), "connections to be refused")
        assert not any(task.done() for task in streams)
        held.gate.set()
        assert all([(await task).whole for task in streams])
        assert await front.process.wait() == expected
        await until(lambda: not any(map(lives, pids)), "all processes to be gone")


async def is_refused(url: str) -> bool:
    parts = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_streams_under_way_end_before_the_processes_do() -> None:
    await ends(lambda front: front.process.send_signal(signal.SIGTERM), 0)


async def test_processes_whose_parent_dies_serve_what_they_have_and_end() -> None:
    await ends(lambda front: front.process.kill(), -signal.SIGKILL)


async def test_a_worker_is_removed_once_no_process_has_requests_there() -> None:
    async with streaming(*ADMIN) as (front, held, streams), client_of(front) as client:
        (url,) = await rows(client)
        removal = asyncio.create_task(client.delete(f"/admin/workers/{url}", headers=BEARER))

        async def leaving() -> bool:
            row = (await rows(client))[url]
            return bool((row["state"], row["inflight_requests"]) == ("draining", 4))

        await until_awaited(leaving, "the removal to begin")
        again = await client.post("/admin/workers", content=url, headers=BEARER)
        assert (again.status_code, removal.done()) == (409, False)
        held.gate.set()
        assert (await removal).json() == {"removed": url, "requests_cut": 0}
        assert all([(await task).whole for task in streams])
        assert (await rows(client)) == {}


async def test_a_clients_limit_is_one_over_all_processes_also_when_one_dies(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-0123456789 name=one requests-per-second=0.001 burst=30\n")
    headers = {"authorization": "Bearer sk-0123456789"}
    async with (
        engine_up(plays(answer(b"{}"))) as worker,
        router([worker.url], "--processes", "6", "--api-keys", str(keys)) as front,
        httpx2.AsyncClient(base_url=front.url, headers=headers, timeout=30.0) as client,
    ):
        await joined(client, 1)
        await all_up(client, 6)

        async def taken() -> int:
            got = await asyncio.gather(
                *(everywhere(front, "POST", "/v1/completions", json=BODY, headers=headers) for _ in range(4))
            )
            return sum(each.status_code == 200 for answers in got for each in answers)

        assert await taken() == 30
        os.kill(children(front)[0], signal.SIGKILL)
        assert await taken() == 0
        keys.write_text("sk-9876543210\n")
        front.process.send_signal(signal.SIGHUP)

        async def other() -> bool:
            got = await everywhere(front, "GET", "/workers", headers={"x-api-key": "sk-9876543210"})
            return {each.status_code for each in got} == {200}

        await until_awaited(other, "the new key to hold")


@pytest.mark.parametrize("option", [("--tokenizer", "/nowhere"), ("--port", "TAKEN")])
async def test_what_is_wrong_is_said_once(option: tuple[str, str]) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0), reuse_port=True)) as taken:
        port = str(taken.getsockname()[1])
        options = ["--port", "0", *TWO, *(port if each == "TAKEN" else each for each in option)]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "router", "serve", "--worker", "http://127.0.0.1:1", *options),
            stderr=asyncio.subprocess.PIPE,
        )
        _, log = await process.communicate()
    assert process.returncode == 2
    assert log.count(b"kv-router: ") == 1
    assert log.splitlines()[-1].startswith(b"kv-router: ")


async def test_a_process_that_stands_still_is_left_out_of_what_is_shown() -> None:
    async with both(count=1, router_options=TWO) as (_, front, client):
        await all_up(client)
        await everywhere(front, "POST", "/v1/completions", json=BODY | {"max_tokens": 1})
        assert await counted(client, "kv_router_requests_total") == MANY
        stopped = children(front)[1]  # the first one certainly takes connections by now
        os.kill(stopped, signal.SIGSTOP)
        async with client_of(front) as fresh:
            asked = [asyncio.create_task(fresh.get("/metrics")) for _ in range(MANY)]
            done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            text = done.pop().result().text
            os.kill(stopped, signal.SIGCONT)
            await asyncio.gather(*waiting)
        assert "kv_router_processes 1.0" in text
        assert re.search(r"kv_router_process_silences_total [1-9]", text)
        assert (
            f'requests_total{{model="stand-in",route="/v1/completions",status_class="2xx"}} {MANY}.0' in text
        )


async def test_connections_of_a_place_without_a_process_are_taken_by_the_others(tmp_path: Path) -> None:
    authorities = tmp_path / "localhost.pem"
    whole = (Path(__file__).parent.parent / "fixtures" / "tls" / "localhost.pem").read_bytes()
    authorities.write_bytes(whole)
    options = (*TWO, "--worker-ca", str(authorities))
    async with both(count=1, router_options=options) as (_, front, client):
        await all_up(client)
        authorities.write_bytes(whole[:100])
        os.kill(children(front)[0], signal.SIGKILL)
        await until(lambda: any(b"has ended (exit code 2)" in line for line in front.log), "a failed start")
        got = await everywhere(front, "POST", "/v1/completions", json=BODY | {"max_tokens": 1})
        assert {each.status_code for each in got} == {200}
        authorities.write_bytes(whole)
        async with httpx2.AsyncClient(base_url=front.url, timeout=30.0) as fresh:
            await all_up(fresh)
        pids = children(front)
        front.process.send_signal(signal.SIGTERM)
        await until_awaited(lambda: is_refused(front.url), "connections to be refused")
        assert await front.process.wait() == 0
        assert not any(map(lives, pids))


async def test_a_process_that_goes_on_standing_still_is_replaced() -> None:
    async with both(count=1, router_options=TWO) as (_, front, client):
        await all_up(client)
        stopped = children(front)[0]
        os.kill(stopped, signal.SIGSTOP)
        got = await everywhere(front, "POST", "/v1/completions", json=BODY | {"max_tokens": 1})
        assert {each.status_code for each in got} == {200}
        assert not lives(stopped)


async def test_a_process_that_comes_back_has_the_settings_and_keys_that_held(tmp_path: Path) -> None:
    settings, keys = tmp_path / "settings.yaml", tmp_path / "keys"
    settings.write_text("api-key: [sk-first-one]\n")
    keys.write_text("sk-0123456789\n")
    options = ("--config", str(settings), "--api-keys", str(keys))

    async def allowed(key: str) -> set[int]:
        headers = {"authorization": f"Bearer {key}"}
        return {each.status_code for each in await everywhere(front, "GET", "/v1/models", headers=headers)}

    async def is_known(key: str) -> bool:
        return await allowed(key) == {200}

    async with engine_up(plays(answer(b"{}"))) as worker, router([worker.url], *TWO, *options) as front:
        headers = {"authorization": "Bearer sk-0123456789"}
        async with httpx2.AsyncClient(base_url=front.url, headers=headers, timeout=30.0) as client:
            await joined(client, 1)
            await all_up(client)
            settings.write_text("api-key: [sk-second-one]\n")
            await until_awaited(lambda: is_known("sk-second-one"), "the second key to hold")
            settings.write_text("api-key: [\n")
            keys.write_text("half")
            killed = children(front)[0]
            os.kill(killed, signal.SIGKILL)
            await until(lambda: not lives(killed))
        async with httpx2.AsyncClient(base_url=front.url, timeout=30.0) as fresh:
            await all_up(fresh)
        assert await allowed("sk-0123456789") == await allowed("sk-second-one") == {200}
        assert await allowed("sk-first-one") == {401}
        settings.write_text("api-key: [sk-third-one]\n")
        keys.write_text("sk-fourth-one\n")
        await until_awaited(lambda: is_known("sk-third-one"), "a later key to hold")
        await until_awaited(lambda: is_known("sk-fourth-one"), "a later file to hold")
