"""Whoever speaks the protocol wrongly gets an answer, or an end, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import random
import re
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import grpc
import httpx2
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from router.epp.messages import DESTINATION
from router.epp.modes import FULL_DUPLEX
from tests.e2e.processes import Running, fleet, joined, router
from tests.epp.test_envoy import free_port
from tests.epp.test_protocol import BUFFERED, RAW, Envoy, Request, chosen, headers, inflight
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ENDED = ext_proc.HttpBody(body=RAW, end_of_stream=True)


@asynccontextmanager
async def picking() -> AsyncIterator[tuple[grpc.aio.Channel, httpx2.AsyncClient, Running]]:
    port = free_port()
    async with fleet(count=2) as workers:
        urls = [worker["url"] for worker in workers.workers]
        async with (
            router(urls, "--epp-port", str(port)) as front,
            httpx2.AsyncClient(base_url=front.url, timeout=30.0) as control,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            await joined(control, 2)
            yield channel, control, front
            await until_awaited(lambda: nothing_left(control), "nothing is held")
            assert not any(b"Traceback" in line or b" ERROR " in line for line in front.log)


async def nothing_left(control: httpx2.AsyncClient) -> bool:
    text = (await control.get("/metrics")).text
    held = re.search(r"^kv_router_held_bytes ([0-9.e+]+)$", text, re.MULTILINE)
    assert held is not None
    return await inflight(control) == 0 and float(held[1]) == 0


async def test_a_stream_that_goes_on_behind_its_end_counts_once_and_then_no_more() -> None:
    async with picking() as (channel, control, _):
        for again in (
            {"request_body": ENDED},
            {"request_headers": headers({":path": "/v1/models"}, end=True)},
        ):
            envoy = Envoy(channel)
            await envoy.asks()
            await envoy.says(request_body=ENDED)
            assert chosen(await envoy.hears())
            await envoy.hears()
            await envoy.says(**again)
            assert (await envoy.hears()).immediate_response.status.code == 400
            assert await inflight(control) == 1
            envoy.call.cancel()
            await until_awaited(lambda: nothing_left(control), "it is counted no more")


BY_CHANCE = [
    *(
        ("POST", path, 404, "no_route")
        for path in ("/flush_cache", "/v1/../flush_cache", "/pause", "/v1/%66")
    ),
    *(("POST", path, 404, "no_route") for path in ("", "/v1/load_lora_adapter", "/health")),
    *(("DELETE", path, 404, "no_route") for path in ("/v1/files/x", "/v1/models/m", "/health", "/v1/../x")),
    ("GET", "/v1/files/x", 404, "no_route"),
    ("GET", "/v1/responses/abc", 404, "not_routed"),
    ("GET", "/v1/responses/abc/input_items", 404, "not_routed"),
    ("DELETE", "/v1/responses/abc?x=1", 404, "not_routed"),
    ("POST", "/v1/responses/abc/cancel", 404, "not_routed"),
    ("GET", "/v1/completions", 405, "method_not_allowed"),
    ("PUT", "/tokenize", 405, "method_not_allowed"),
    ("", "/v1/embeddings", 404, "no_route"),
]
ANY_WORKER = [
    *(("GET", path) for path in ("/v1/models", "/v1/models/m", "/health")),
    *(("POST", path) for path in ("/v1/embeddings?x=1", "/tokenize")),
    ("HEAD", "/health"),
]


async def test_what_is_not_for_any_worker_reaches_none_by_chance() -> None:
    async with picking() as (channel, _, _front):
        for method, path, status, code in BY_CHANCE:
            envoy = Envoy(channel)
            await envoy.says(request_headers=headers({":method": method, ":path": path}, end=True))
            refused = (await envoy.hears()).immediate_response
            assert (refused.status.code, json.loads(refused.body)["error"]["code"]) == (status, code), path
        for method, path in ANY_WORKER:
            envoy = Envoy(channel)
            await envoy.says(request_headers=headers({":method": method, ":path": path}, end=True))
            assert chosen(await envoy.hears())
            envoy.call.cancel()


async def test_a_buffered_body_is_whole_also_where_trailers_follow() -> None:
    async with picking() as (channel, _, _front):
        envoy = Envoy(channel, BUFFERED)
        await envoy.asks()
        await envoy.hears()
        await envoy.says(request_body=ext_proc.HttpBody(body=RAW))
        assert chosen(await envoy.hears())
        await envoy.says(request_trailers=ext_proc.HttpTrailers())
        assert (await envoy.hears()).HasField("request_trailers")
        await envoy.says(response_headers=headers({":status": "9" * 5000}, end=True))
        assert (await envoy.hears()).HasField("response_headers")


async def test_a_mode_without_whole_bodies_is_refused_and_one_line_names_those_expected() -> None:
    async with picking() as (channel, _, front):
        for mode, name in ((0, "NONE"), (1, "STREAMED"), (3, "BUFFERED_PARTIAL")):
            envoy = Envoy(channel, mode)
            await envoy.asks()
            refused = (await envoy.hears()).immediate_response
            assert refused.status.code == 500
            assert f"request_body_mode {name}: expected FULL_DUPLEX_STREAMED or BUFFERED" in str(refused.body)
            bodiless = Envoy(channel, mode)
            await bodiless.says(request_headers=headers({":method": "GET", ":path": "/health"}, end=True))
            assert chosen(await bodiless.hears())
            bodiless.call.cancel()
        late = Envoy(channel, 3)
        await late.call.write(
            Request(request_headers=headers({":method": "POST", ":path": "/v1/completions"}))
        )
        assert (await late.hears()).HasField("request_headers")
        await late.says(request_body=ext_proc.HttpBody(body=RAW))
        assert (await late.hears()).immediate_response.status.code == 500
    said = [line for line in front.log if b"request_body_mode" in line]
    assert len(said) == 1
    assert b"request_body_mode NONE: expected FULL_DUPLEX_STREAMED or BUFFERED" in said[0]


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_is_said_leaves_nothing_behind(seed: int) -> None:
    rng = random.Random(seed)
    async with picking() as (channel, _, _front):
        await asyncio.gather(*(_babble(channel, random.Random(rng.random())) for _ in range(60)))
        envoy = Envoy(channel)
        await envoy.asks()
        await envoy.says(request_body=ENDED)
        assert chosen(await envoy.hears())
        envoy.call.cancel()


async def _babble(channel: grpc.aio.Channel, rng: random.Random) -> None:
    """Say anything, in any order, and hang up at any time."""
    envoy = Envoy(channel, rng.choice([0, 1, BUFFERED, 3, FULL_DUPLEX]))
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
        for _ in range(rng.randrange(1, 8)):
            message = Request(**_part(rng))
            if rng.random() < 0.7:
                message.protocol_config.request_body_mode = rng.choice([0, 2, FULL_DUPLEX])
            _hint(message, rng)
            await envoy.call.write(message)
        if rng.random() < 0.5:
            await envoy.call.done_writing()
            async for _ in envoy.call:
                pass
    envoy.call.cancel()


def _part(rng: random.Random) -> dict[str, Any]:
    end = rng.random() < 0.5
    body = ext_proc.HttpBody(
        body=rng.choice([RAW, b"", rng.randbytes(50_000), b"{", b"[" * 5000]), end_of_stream=end
    )
    said = headers({":path": rng.choice(["/v1/completions", "/x", ""]), "\u00fc": "\u20ac"}, end=end)
    nothing = ext_proc.HttpHeaders(end_of_stream=end)
    trailers = ext_proc.HttpTrailers()
    return rng.choice(
        [
            {"request_headers": said},
            {"request_headers": said},
            {"request_headers": nothing},
            {"request_body": body},
            {"request_body": body},
            {"request_trailers": trailers},
            {"response_headers": headers({":status": rng.choice(["200", "-1", "abc", ""])}, end=end)},
            {"response_body": body},
            {"response_trailers": trailers},
            {},
        ]
    )


def _hint(message: Any, rng: random.Random) -> None:
    value = rng.choice([None, None, None, 1.5, "", "garbage:::,\n", ["10.0.0.1:1", "", 7.0], {"a": [None]}])
    if value is not None:
        hint = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        hint.update({f"{DESTINATION}-subset": value})
