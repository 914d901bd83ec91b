"""What Envoy carries is counted and told of like what the router carries itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import grpc
import httpx2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from tests.e2e.processes import fleet, joined, router
from tests.epp.test_envoy import free_port
from tests.epp.test_protocol import RAW, Envoy, chosen, headers
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from tests.e2e.processes import Running

ENDED = ext_proc.HttpBody(body=RAW, end_of_stream=True)
REFUSED = {
    "/v1/completions": b"{",
    "/v1/chat/completions": b'{"model": "other", "messages": []}',
    "/pause": b"",
}


async def _refuse_some(channel: grpc.aio.Channel) -> None:
    for path, body in REFUSED.items():
        envoy = Envoy(channel)
        await envoy.says(request_headers=headers({":method": "POST", ":path": path, "x-request-id": path}))
        if body:
            await envoy.says(request_body=ext_proc.HttpBody(body=body, end_of_stream=True))
        assert (await envoy.hears()).immediate_response.status.code in {400, 404}
        envoy.call.cancel()


async def _answer_one(channel: grpc.aio.Channel) -> None:
    envoy = Envoy(channel)
    await envoy.asks()
    await envoy.says(request_body=ENDED)
    assert chosen(await envoy.hears())
    await envoy.hears()
    await envoy.says(response_headers=headers({":status": "200"}, end=True))
    await envoy.hears()
    envoy.call.cancel()


async def _choose_one(channel: grpc.aio.Channel) -> None:
    """Choose for a request of which nothing more is heard."""
    envoy = Envoy(channel)
    await envoy.asks("/v1/embeddings")
    await envoy.says(request_body=ENDED)
    assert chosen(await envoy.hears())
    envoy.call.cancel()


def counts(text: str, name: str) -> dict[str, float]:
    found = re.findall(rf"^kv_router_{name}\{{(.*)\}} ([0-9.e+]+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found if float(value)}


async def _no_worker(port: int) -> tuple[str, Running]:
    """Return the metrics of a router whose worker is down, and the router; it has refused a request."""
    async with (
        router(["http://127.0.0.1:1"], "--epp-port", str(port), "--log-requests", "1") as front,
        httpx2.AsyncClient(base_url=front.url, timeout=30.0) as control,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        envoy = Envoy(channel)
        await envoy.asks()
        assert (await envoy.refused())[0] == 503
        return (await control.get("/metrics")).text, front


async def test_what_is_refused_is_counted_by_fault_and_has_a_line() -> None:
    text, front = await _no_worker(free_port())
    assert counts(text, "errors_total") == {'fault="capacity"': 1}
    assert counts(text, "requests_total") == {
        'model="other",route="/v1/completions",status_class="5xx"': 1,
    }
    lines = [line for line in front.log if b" request id=" in line]
    assert len(lines) == 1
    assert b"path=/v1/completions status=503 error=no_worker" in lines[0]


async def test_each_is_counted_once_by_what_envoy_tells_of_it() -> None:
    port = free_port()
    async with (
        fleet(count=1) as workers,
        router([workers.workers[0]["url"]], "--epp-port", str(port), "--log-requests", "1") as front,
        httpx2.AsyncClient(base_url=front.url, timeout=30.0) as control,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        await joined(control, 1)
        await _refuse_some(channel)
        await _answer_one(channel)
        await _choose_one(channel)
        wanted = {
            'model="other",route="/v1/completions",status_class="4xx"': 1,
            'model="other",route="/v1/chat/completions",status_class="4xx"': 1,
            'model="other",route="other",status_class="4xx"': 1,
            'model="stand-in",route="/v1/completions",status_class="2xx"': 1,
            'model="stand-in",route="other",status_class="other"': 1,
        }

        async def counted() -> bool:
            return counts((await control.get("/metrics")).text, "requests_total") == wanted

        await until_awaited(counted, "each is counted")
        text = (await control.get("/metrics")).text
        assert counts(text, "errors_total") == {'fault="client"': 3}
    lines = [line for line in front.log if b" request id=" in line]
    assert [line.split(b" request id=")[1].split(b" ")[0].decode() for line in lines[:3]] == list(REFUSED)
    assert len(lines) == 5
    assert b"status=200 model=stand-in" in lines[3]
    assert b"worker=http://127.0.0.1:" in lines[3]
