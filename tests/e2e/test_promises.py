"""What the router promises while workers die, hang, refuse, come and go: over real sockets and processes."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2

from tests.e2e.asking import Got, Load, ask, no_load, rows
from tests.e2e.processes import Running, fleet, joined, router
from tests.e2e.stub import GOOD, raw, stub
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "a-key-of-sixteen-characters"
BEARER = {"authorization": f"Bearer {KEY}"}
ADMIN = ("--admin-key", KEY, "--worker-allow", "127.0.0.0/8")
STREAMS = 200


class Site:
    """A router and its workers, each of them a process of its own that can be killed and started again."""

    def __init__(self, stack: AsyncExitStack, *options: str) -> None:
        self._stack = stack
        self._options = options
        self.workers: dict[str, Running] = {}
        self.url = ""
        self.client: httpx2.AsyncClient

    async def start(self, url: str = "") -> str:
        """Start a worker, on the port of one that is gone if a URL is given."""
        port = urlsplit(url).port or 0
        one = await self._stack.enter_async_context(fleet(*self._options, "--port", str(port), count=1))
        where: str = one.workers[0]["url"]
        self.workers[where] = one
        return where

    async def route(self, *options: str) -> None:
        """Start the router in front of the workers."""
        front = await self._stack.enter_async_context(router(list(self.workers), *options))
        self.url = front.url
        self.client = await self._stack.enter_async_context(
            httpx2.AsyncClient(base_url=front.url, timeout=30.0)
        )
        await joined(self.client, len(self.workers))

    async def row(self, url: str) -> dict[str, Any]:
        return (await rows(self.client))[url]

    async def is_in(self, url: str, **expected: str) -> bool:
        """Whether a worker is in such a `state`, or its `breaker` is."""
        row = await self.row(url)
        seen = {"state": row["state"], "breaker": row["breaker"]["state"]}
        return all(seen[name] == value for name, value in expected.items())

    async def admin(self, method: str, path: str, **given: Any) -> httpx2.Response:
        return await self.client.request(method, f"/admin/workers{path}", headers=BEARER, **given)

    async def fault(self, url: str, **plan: Any) -> None:
        async with httpx2.AsyncClient() as direct:
            assert (await direct.post(f"{url}/_faults", json=plan)).status_code == 200


@asynccontextmanager
async def site(
    count: int, *options: str, router_options: tuple[str, ...] = (), profile: str = "fast"
) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        here = Site(stack, "--profile", profile, *options)
        await asyncio.gather(*(here.start() for _ in range(count)))
        await here.route(*router_options)
        yield here
        await until_awaited(lambda: no_load(here.client), "an empty ledger")


def told(answers: list[Got]) -> Counter[str]:
    return Counter("whole" if got.whole else "told" if got.told else repr(got)[:300] for got in answers)


async def test_a_worker_killed_under_load_costs_only_the_streams_that_it_had_begun() -> None:
    options = ("--breaker-seconds", "0.2")
    async with site(4, router_options=options, profile="70b-tp8") as here:
        begun: list[None] = []
        streams = [
            asyncio.create_task(
                ask(here.url, lambda: begun.append(None), prompt=[user % 250 + 1] * 20, max_tokens=60)
            )
            for user in range(STREAMS)
        ]
        load = Load(here.url, 20)
        await until(lambda: len(begun) == STREAMS or any(stream.done() for stream in streams))
        killed = next(iter(here.workers))
        here.workers[killed].kill()
        await until_awaited(lambda: here.is_in(killed, state="failed"), "the loss to be seen")
        answers = await asyncio.gather(*streams)
        assert set(told(answers)) == {"whole", "told"}
        assert 0 < told(answers)["told"] < STREAMS / 2
        seen = len(load.answers)
        await here.start(killed)
        await until_awaited(lambda: here.is_in(killed, state="ready", breaker="closed"), "its return")
        await load.goes_on(seen + 20)
        requests = await load.stop()
        # A short stream may have had its first byte when it was cut: then it was told so.
        assert set(told(requests)) <= {"whole", "told"}
        assert not any(got.told for got in requests if b"text/event-stream" not in got.head)
        assert told(requests)["told"] <= 20


async def test_a_rolling_restart_fails_no_request() -> None:
    async with site(3, router_options=ADMIN) as here:
        load = Load(here.url, 8, max_tokens=20)
        for url in list(here.workers):
            before = len(load.answers)
            assert (await here.admin("POST", f"/{url}/drain")).json()["state"] == "draining"

            async def done(url: str = url) -> bool:
                return bool((await here.row(url))["inflight_requests"] == 0)

            await until_awaited(done, "its requests to end")
            here.workers[url].kill()
            await here.workers[url].process.wait()
            await here.start(url)
            await here.admin("POST", f"/{url}/undrain")
            await joined(here.client, 3)
            await load.goes_on(before + 20)
        assert set(told(await load.stop())) == {"whole"}


async def test_a_worker_that_hangs_holds_nobody_else_is_taken_out_and_comes_back() -> None:
    options = ("--first-byte-seconds", "0.3", "--breaker-seconds", "0.3", "--policy", "round_robin")
    async with site(3, router_options=options) as here:
        hanging = next(iter(here.workers))
        await here.fault(hanging, slow=600.0)
        load = Load(here.url, 8)
        await until_awaited(lambda: here.is_in(hanging, breaker="open"), "the breaker to open")
        row = await here.row(hanging)
        assert row["state"] == "ready"
        assert row["breaker"]["failures"]["timeout"] >= 5
        await here.fault(hanging)
        await until_awaited(lambda: here.is_in(hanging, breaker="closed"), "the breaker to close")
        changes = (await here.row(hanging))["breaker"]["changes"]
        assert changes["half_open"]["probe"] >= 1
        assert changes["closed"] == {"trial": 1}
        assert set(told(await load.stop())) == {"whole"}


async def test_a_worker_that_fails_is_taken_out_and_the_last_one_never_is() -> None:
    options = ("--policy", "round_robin", "--breaker-seconds", "3600")
    async with site(2, router_options=options) as here:
        one, other = here.workers
        await here.fault(one, status=500)
        load = Load(here.url, 4)
        await until_awaited(lambda: here.is_in(one, breaker="open"), "the breaker to open")
        failed = [got for got in await load.stop() if got.status == 500]
        assert 5 <= len(failed) < 10
        for _ in range(10):
            assert (await ask(here.url, prompt=[1])).whole
        await here.fault(other, status=500)
        for _ in range(10):
            assert (await ask(here.url, prompt=[1])).status == 500
        assert await here.is_in(other, state="ready", breaker="open")
        metrics = (await here.client.get("/metrics")).text
        assert f'kv_router_breaker_state{{state="open",worker="{other}"}} 1.0' in metrics
        assert "kv_router_worker_failures_total{" in metrics


async def test_a_worker_that_refuses_is_spared_and_if_all_do_the_client_hears_it_from_the_last() -> None:
    body = b'{"error":  {"message": "queue is full"}}'
    async with (
        stub() as one,
        stub() as other,
        router([one.url, other.url], "--policy", "round_robin") as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        await joined(client, 2)
        one.answer = raw(429, body, b"retry-after: 7", b"x-engine: one")
        for _ in range(20):
            assert (await ask(front.url)).whole
        row = (await rows(client))[one.url]
        assert (one.asked, row["refusals"]) == (1, 1)
        assert 0 < row["loaded_seconds"] <= 7
        assert row["breaker"]["failures"] == {}
        other.answer = raw(503, body, b"retry-after: 9")
        got = await ask(front.url)
        # The first is spared still: the answer of the one that was asked is heard.
        assert (got.status, got.body) == (503, body)
        assert b"\r\nretry-after: 9\r\n" in got.head
        assert f"\r\nx-kv-router-worker: {other.url}\r\n".encode() in got.head
        assert await no_load(client)


async def test_workers_that_all_refuse_get_no_more_requests_than_clients_send() -> None:
    async with (
        stub() as one,
        stub() as other,
        router([one.url, other.url], "--retry-floor", "1000", "--retries", "8") as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        await joined(client, 2)
        one.answer = other.answer = raw(429, b"full", b"retry-after: 30")
        assert (await ask(front.url)).status == 429
        assert (one.asked, other.asked) == (1, 1)
        for _ in range(20):
            got = await ask(front.url)
            assert (got.status, got.body) == (429, b"full")
            assert b"\r\nretry-after: 30\r\n" in got.head
        assert one.asked + other.asked == 22
        one.answer = other.answer = raw(200, GOOD)
        assert (await ask(front.url)).whole  # whoever has room again before its time is given work
        assert await no_load(client)


async def test_the_only_worker_is_tried_again_and_stays_in() -> None:
    async with (
        stub() as worker,
        router([worker.url], "--probe-seconds", "60") as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        await joined(client, 1)
        worker.answer = raw(200, GOOD, b"connection: close")
        for asked in (2, 4, 6):
            worker.cuts = 1
            assert (await ask(front.url)).whole
            assert worker.asked == asked
        worker.cuts = 2
        assert (await ask(front.url)).status == 502
        row = (await rows(client))[worker.url]
        # Each time it was looked at at once, although the next probe was a minute away.
        assert row["breaker"]["failures"] == {"reset": 5}
        assert await no_load(client)


async def test_retries_end_with_their_budget() -> None:
    options = (
        "--policy",
        "round_robin",
        "--retry-share",
        "0",
        "--retry-floor",
        "0.3",
        "--breaker-failures",
        "0",
    )
    async with (
        stub() as one,
        stub() as other,
        router([one.url, other.url], *options) as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        await joined(client, 2)
        # Every answer says that it has been refused, for no time at all: each request costs a retry.
        one.answer = other.answer = raw(429, b"no", b"retry-after: 0")
        for _ in range(30):
            assert (await ask(front.url)).status == 429
        metrics = (await client.get("/metrics")).text
        found = dict(line.split(" ") for line in metrics.splitlines() if line.startswith("kv_router_retries"))
        sent = float(found["kv_router_retries_total"])
        assert 3 <= sent < 30
        assert float(found["kv_router_retries_refused_total"]) == 30 - sent
        assert one.asked + other.asked == 30 + sent


async def test_workers_are_added_and_removed_under_streams_that_do_not_notice() -> None:
    async with site(2, router_options=ADMIN) as here:
        first, second = here.workers
        load = Load(here.url, 8, max_tokens=200)
        await until(lambda: len(load.answers) > 8)
        added = await here.start()
        answer = await here.admin("POST", "", json={"url": added, "engine": "sglang"})
        assert (answer.status_code, answer.json()["url"]) == (201, added)
        await joined(here.client, 3)
        for gone in (first, second):
            answer = await here.admin("DELETE", f"/{gone.removeprefix('http://')}")
            assert answer.json() == {"removed": gone, "requests_cut": 0}
        seen = len(load.answers)
        await load.goes_on(seen + 20)
        assert set(told(await load.stop())) == {"whole"}
        assert list(await rows(here.client)) == [added]
        metrics = (await here.client.get("/metrics")).text
        assert first not in metrics
        assert second not in metrics


async def test_a_stream_that_outlasts_its_removed_worker_is_told() -> None:
    async with site(2, router_options=ADMIN) as here:
        for url in here.workers:
            await here.fault(url, endless=1.0)
        begun = asyncio.Event()
        stream = asyncio.create_task(ask(here.url, begun.set, prompt=[1]))
        await begun.wait()
        on = next(url for url, row in (await rows(here.client)).items() if row["inflight_requests"])
        answer = await here.admin("DELETE", f"/{on}", params={"seconds": "0"})
        assert answer.json() == {"removed": on, "requests_cut": 1}
        assert b'"worker_removed"' in (await stream).body.rstrip().rpartition(b"data: ")[2]


async def test_a_router_may_begin_with_nobody() -> None:
    async with fleet(count=1) as workers, router([], *ADMIN) as front:
        url = workers.workers[0]["url"]
        async with httpx2.AsyncClient(base_url=front.url) as client:
            assert (await client.get("/ready")).status_code == 503
            assert (await client.post("/explain", json={"prompt": [1]})).status_code == 503
            added = await client.post("/admin/workers", content=url, headers=BEARER)
            assert added.status_code == 201
            await joined(client, 1)
            assert (await ask(front.url, prompt=[1])).whole


async def test_a_wrong_worker_is_refused_with_the_field_at_fault() -> None:
    async with router([], *ADMIN) as front, httpx2.AsyncClient(base_url=front.url) as client:
        for content, status, param in (
            (b"http://127.0.0.1:1,dp=x", 400, "dp"),
            (b'"http://127.0.0.1:1,nonsense=x"', 400, "setting"),
            (b'{"url": "http://127.0.0.1:1", "block-size": true}', 400, "block-size"),
            (b'{"kv": "tcp://127.0.0.1:1"}', 400, "url"),
            (b"[1]", 400, "url"),
            (b"", 400, "url"),
            (b"\xff", 400, "url"),
            (b"http://10.0.0.1:1", 403, "url"),
            (b"http://127.0.0.1:1,replay=tcp://10.0.0.1:1", 403, "replay"),
        ):
            answer = await client.post("/admin/workers", content=content, headers=BEARER)
            assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), content
        assert (await client.post("/admin/workers", content=b"http://127.0.0.1:1")).status_code == 401
        assert (await client.delete("/admin/workers/x", headers=BEARER)).status_code == 404
        added = b"http://127.0.0.1:1"
        assert (await client.post("/admin/workers", content=added, headers=BEARER)).status_code == 201
        assert (await client.post("/admin/workers", content=added, headers=BEARER)).status_code == 409
        wrong = await client.delete("/admin/workers/127.0.0.1:1?seconds=-1", headers=BEARER)
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "seconds")
        assert "expected a number of seconds, from 0 to" in wrong.json()["error"]["message"]
        for place, names in (("fleet", False), ("workers/127.0.0.1:1", True)):
            wrong = await client.post(f"/admin/{place}/explode", headers=BEARER)
            assert ("undrain" in wrong.json()["error"]["message"]) is names  # of one worker only


async def test_a_redirect_is_never_followed() -> None:
    async with stub() as elsewhere, stub() as worker:
        moved = raw(302, b"", f"location: {elsewhere.url}/".encode())
        async with router([worker.url]) as front, httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 1)
            worker.answer = moved
            got = await ask(front.url)
            assert (got.status, f"location: {elsewhere.url}/".encode() in got.head) == (302, True)
            worker.said = moved

            async def lost() -> bool:
                row = (await rows(client))[worker.url]
                return row["state"] == "failed" and "302" in row["why"]

            await until_awaited(lost, "the redirect to be seen")
        assert not elsewhere.connections


async def test_a_worker_that_dies_with_idle_connections_costs_nobody_an_answer() -> None:
    async with (
        stub() as one,
        stub() as other,
        router([one.url, other.url], "--probe-seconds", "60") as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        await joined(client, 2)
        prompt = list(range(2000))
        held = await ask(front.url, prompt=prompt)
        holder = one if f"x-kv-router-worker: {one.url}".encode() in held.head else other
        holder.cuts = 1  # the connection that was idle
        assert (await ask(front.url, prompt=prompt)).whole
        assert (holder.cuts, holder.asked) == (0, 3)
        assert await no_load(client)


async def test_a_request_that_its_workers_die_of_goes_to_one_more_at_most() -> None:
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(stub()) for _ in range(4)]
        urls = [worker.url for worker in workers]
        front = await stack.enter_async_context(router(urls, "--policy", "round_robin"))
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=front.url))
        await joined(client, 4)
        for _ in workers:
            assert (await ask(front.url, prompt=[1])).whole
        asked = sum(worker.asked for worker in workers)
        for worker in workers:
            worker.cuts = 9
        assert (await ask(front.url, prompt=[1])).status == 502
        assert sum(worker.asked for worker in workers) == asked + 2
