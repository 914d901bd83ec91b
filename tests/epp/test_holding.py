"""What is held of a request, for how long; and what is told of changes, and read of hints, by anybody."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from router.epp.messages import DESTINATION
from tests.e2e.processes import fleet, router
from tests.epp.test_envoy import free_port
from tests.epp.test_protocol import BUFFERED, RAW, Envoy, chosen, headers, inflight, picking
from tests.waiting import DEADLINE_SECONDS, until_awaited

if TYPE_CHECKING:
    import httpx2

SIZE = 5000
LONG = headers({":method": "POST", ":path": "/v1/completions", "x-long": "a" * SIZE})


async def held(control: httpx2.AsyncClient) -> float:
    """Return how many bytes of requests there are, by the router's own metric."""
    found = re.search(
        r"^kv_router_held_bytes ([0-9.e+]+)$", (await control.get("/metrics")).text, re.MULTILINE
    )
    assert found is not None
    return float(found[1])


async def test_headers_count_as_held_as_soon_as_they_have_come() -> None:
    async with picking() as (channel, control, _):
        envoy = Envoy(channel, BUFFERED)
        await envoy.says(request_headers=LONG)
        assert (await envoy.hears()).HasField("request_headers")
        assert await held(control) >= SIZE


async def test_a_request_is_held_until_the_choice_and_not_while_its_answer_lasts() -> None:
    async def nothing_is() -> bool:
        return await held(control) == 0

    async def all_is() -> bool:
        return await held(control) >= 2 * SIZE

    async with picking() as (channel, control, endpoints):
        envoy = Envoy(channel)
        await envoy.says(request_headers=LONG)
        await envoy.says(request_body=ext_proc.HttpBody(body=RAW[:-1] + b" " * SIZE))
        await until_awaited(all_is, "headers and body are held")
        await envoy.says(request_body=ext_proc.HttpBody(body=RAW[-1:], end_of_stream=True))
        assert chosen(await envoy.hears()) in endpoints
        assert (await envoy.hears()).HasField("request_body")
        await until_awaited(nothing_is, "nothing is held")
        assert await inflight(control) == 1


async def test_a_subset_may_be_text_with_commas() -> None:
    async with picking() as (channel, _, endpoints):
        for endpoint in (*endpoints, *endpoints):
            envoy, hints = Envoy(channel), base_pb2.Metadata()
            text = f"10.0.0.1:1, {endpoint}"
            hints.filter_metadata["envoy.lb.subset_hint"].update({f"{DESTINATION}-subset": text})
            await envoy.says(request_headers=LONG, metadata_context=hints)
            await envoy.says(request_body=ext_proc.HttpBody(body=RAW, end_of_stream=True))
            assert chosen(await envoy.hears()) == endpoint


async def test_who_watches_its_health_is_told_when_it_can_pick_and_when_it_cannot() -> None:
    port, states = free_port(), health_pb2.HealthCheckResponse
    async with (
        fleet(count=1) as workers,
        router([workers.workers[0]["url"]], "--epp-port", str(port)),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        request = health_pb2.HealthCheckRequest(service="readiness")
        told = aiter(health_pb2_grpc.HealthStub(channel).Watch(request, wait_for_ready=True))
        said = [(await asyncio.wait_for(anext(told), DEADLINE_SECONDS)).status]
        if said == [states.NOT_SERVING]:  # the worker has not joined yet
            said = [(await asyncio.wait_for(anext(told), DEADLINE_SECONDS)).status]
        assert said == [states.SERVING]
        workers.kill()
        assert (await asyncio.wait_for(anext(told), DEADLINE_SECONDS)).status == states.NOT_SERVING
