"""The protocol, by a client that plays Envoy message by message."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import httpx2
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from router.epp.messages import DESTINATION
from router.epp.modes import FULL_DUPLEX
from tests.e2e.processes import fleet, joined, router
from tests.epp.test_envoy import BODY, free_port
from tests.waiting import DEADLINE_SECONDS, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

TLS = Path(__file__).parents[1] / "fixtures" / "tls"
BUFFERED = 2
RAW = json.dumps(BODY).encode()
Request = ext_proc.ProcessingRequest


class Envoy:
    """One request's stream, as Envoy has it."""

    def __init__(self, channel: grpc.aio.Channel, mode: int = FULL_DUPLEX) -> None:
        self.call = ext_proc_grpc.ExternalProcessorStub(channel).Process()
        self._config = ext_proc.ProtocolConfiguration(request_body_mode=mode, response_body_mode=mode)

    async def says(self, **message: Any) -> None:
        """Send one message; the first brings the modes."""
        await self.call.write(Request(**message, protocol_config=self._config))
        self._config = None

    async def asks(self, path: str = "/v1/completions", *, among: Sequence[str] | None = None) -> None:
        """Send the headers of a request."""
        message = Request(request_headers=headers({":method": "POST", ":path": path}))
        if among is not None:
            hint = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
            hint.get_or_create_list(f"{DESTINATION}-subset").extend(among)
        message.protocol_config.CopyFrom(self._config)
        self._config = None
        await self.call.write(message)

    async def hears(self) -> Any:
        """Return the next answer."""
        answer = await asyncio.wait_for(self.call.read(), DEADLINE_SECONDS)
        assert answer is not grpc.aio.EOF
        return answer

    async def refused(self, body: bytes = RAW) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Send a body, and return the answer that the client gets at once: status, headers, error."""
        await self.says(request_body=ext_proc.HttpBody(body=body, end_of_stream=True))
        answer = (await self.hears()).immediate_response
        error: dict[str, Any] = json.loads(answer.body)["error"]
        return answer.status.code, set_headers(answer.headers), error


def headers(fields: dict[str, str], *, end: bool = False) -> ext_proc.HttpHeaders:
    made = ext_proc.HttpHeaders(end_of_stream=end)
    for name, value in fields.items():
        made.headers.headers.add(key=name, raw_value=value.encode())
    return made


def set_headers(mutation: ext_proc.HeaderMutation) -> dict[str, str]:
    return {each.header.key: each.header.raw_value.decode() for each in mutation.set_headers}


def chosen(answer: Any) -> str:
    """Return the endpoint that an answer names, the same in header and metadata."""
    part = answer.request_headers if answer.HasField("request_headers") else answer.request_body
    header: str = set_headers(part.response.header_mutation)[DESTINATION]
    assert answer.dynamic_metadata["envoy.lb"][DESTINATION] == header
    return header


@asynccontextmanager
async def picking(
    *options: str, count: int = 2, fleet_options: Sequence[str] = ()
) -> AsyncIterator[tuple[grpc.aio.Channel, httpx2.AsyncClient, list[str]]]:
    """Run workers and a router that picks; give a channel, a client of its HTTP side, and the endpoints."""
    port = free_port()
    async with fleet(*fleet_options, count=count) as workers:
        urls = [worker["url"] for worker in workers.workers]
        async with (
            router(urls, "--epp-port", str(port), *options) as front,
            httpx2.AsyncClient(base_url=front.url, timeout=30.0) as control,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            await joined(control, count)
            yield channel, control, [url.partition("://")[2] for url in urls]


async def inflight(control: httpx2.AsyncClient) -> int:
    rows = (await control.get("/workers")).json()["workers"]
    return sum(row["inflight_requests"] for row in rows)


async def test_a_stream_is_answered_with_the_choice_then_with_its_own_pieces() -> None:
    large = RAW[:-1] + b" " * 150_000 + b"}"
    async with picking() as (channel, control, endpoints):
        envoy = Envoy(channel)
        await envoy.asks()
        for start in range(0, len(large), 40_000):
            piece = large[start : start + 40_000]
            end = start + 40_000 >= len(large)
            await envoy.says(request_body=ext_proc.HttpBody(body=piece, end_of_stream=end))
        assert chosen(await envoy.hears()) in endpoints
        body, ended = b"", False
        while not ended:
            piece = (await envoy.hears()).request_body.response.body_mutation.streamed_response
            body, ended = body + piece.body, piece.end_of_stream
        assert body == large
        assert await inflight(control) == 1
        await envoy.says(response_headers=headers({":status": "200"}))
        said = set_headers((await envoy.hears()).response_headers.response.header_mutation)
        assert set(said) == {"x-kv-router-worker", "x-kv-router-rank", "x-kv-router-overlap-tokens"}
        await envoy.says(response_body=ext_proc.HttpBody(body=b"token", end_of_stream=False))
        answer = (await envoy.hears()).response_body.response.body_mutation.streamed_response
        assert (answer.body, answer.end_of_stream) == (b"token", False)
        assert await inflight(control) == 1
        await envoy.says(response_body=ext_proc.HttpBody(body=b"", end_of_stream=True))
        answer = (await envoy.hears()).response_body.response.body_mutation.streamed_response
        assert (answer.body, answer.end_of_stream) == (b"", True)
        assert await inflight(control) == 0


async def test_buffered_messages_are_answered_one_by_one() -> None:
    async with picking() as (channel, control, endpoints):
        envoy = Envoy(channel, BUFFERED)
        await envoy.asks()
        assert (await envoy.hears()).HasField("request_headers")
        await envoy.says(request_body=ext_proc.HttpBody(body=RAW, end_of_stream=True))
        assert chosen(await envoy.hears()) in endpoints
        await envoy.says(response_headers=headers({":status": "200"}, end=True))
        assert (await envoy.hears()).HasField("response_headers")
        assert await inflight(control) == 0


async def test_a_body_that_ends_with_trailers_is_whole() -> None:
    async with picking() as (channel, _, endpoints):
        envoy = Envoy(channel)
        await envoy.asks()
        await envoy.says(request_body=ext_proc.HttpBody(body=RAW))
        await envoy.says(request_trailers=ext_proc.HttpTrailers())
        assert chosen(await envoy.hears()) in endpoints
        piece = (await envoy.hears()).request_body.response.body_mutation.streamed_response
        assert (piece.body, piece.end_of_stream) == (RAW, False)
        assert (await envoy.hears()).HasField("request_trailers")


async def test_a_rank_is_pinned() -> None:
    async with picking(count=1, fleet_options=("--dp", "2")) as (channel, _, _endpoints):
        envoy = Envoy(channel)
        await envoy.asks()
        await envoy.says(request_body=ext_proc.HttpBody(body=RAW, end_of_stream=True))
        said = set_headers((await envoy.hears()).request_headers.response.header_mutation)
        assert {name.lower(): value for name, value in said.items()}["x-data-parallel-rank"] in {"0", "1"}


async def test_a_subset_is_kept_to_and_an_empty_one_is_503() -> None:
    async with picking() as (channel, _, endpoints):
        for endpoint in (*endpoints, *endpoints):
            envoy = Envoy(channel)
            await envoy.asks(among=[endpoint, "10.0.0.1:1"])
            await envoy.says(request_body=ext_proc.HttpBody(body=RAW, end_of_stream=True))
            assert chosen(await envoy.hears()) == endpoint
        for among in ([], ["10.0.0.1:1"]):
            envoy = Envoy(channel)
            await envoy.asks(among=among)
            assert (await envoy.refused())[0] == 503


async def test_who_hangs_up_is_counted_no_more() -> None:
    async with picking() as (channel, control, _):
        envoy = Envoy(channel)
        await envoy.asks()
        await envoy.says(request_body=ext_proc.HttpBody(body=RAW, end_of_stream=True))
        await envoy.hears()
        assert await inflight(control) == 1
        envoy.call.cancel()

        async def none() -> bool:
            return await inflight(control) == 0

        await until_awaited(none, "nothing is in flight")


async def test_what_cannot_be_served_is_answered_at_once() -> None:
    async with picking("--max-inflight", "1", "--queue-size", "0", "--max-body-bytes", "1024") as (
        channel,
        *_,
    ):
        wrong = Envoy(channel)
        await wrong.asks()
        assert (await wrong.refused(b'{"model": "other", "prompt": [1]}'))[0] == 404
        broken = Envoy(channel)
        await broken.asks()
        assert (await broken.refused(b"{"))[0] == 400
        large = Envoy(channel)
        await large.asks()
        assert (await large.refused(RAW + b" " * 1024))[0] == 413
        first = Envoy(channel)
        await first.asks()
        await first.says(request_body=ext_proc.HttpBody(body=RAW, end_of_stream=True))
        await first.hears()
        second = Envoy(channel)
        await second.asks()
        status, said, error = await second.refused()
        assert (status, error["code"]) == (429, "overloaded")
        assert int(said["retry-after"]) >= 1


async def test_a_worker_that_refuses_is_spared() -> None:
    async with picking() as (channel, control, endpoints):
        envoy = Envoy(channel)
        await envoy.asks()
        await envoy.says(request_body=ext_proc.HttpBody(body=RAW, end_of_stream=True))
        endpoint = chosen(await envoy.hears())
        await envoy.hears()
        await envoy.says(response_headers=headers({":status": "503"}, end=True))
        await envoy.hears()
        rows = (await control.get("/workers")).json()["workers"]
        assert {row["url"].partition("://")[2]: row["refusals"] for row in rows}[endpoint] == 1
        assert len(endpoints) == 2


async def test_health_has_the_names_that_the_protocol_gives() -> None:
    port = free_port()
    states = health_pb2.HealthCheckResponse
    async with (
        router(["http://127.0.0.1:1"], "--epp-port", str(port)),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        for name, expected in (
            ("", states.SERVING),
            ("liveness", states.SERVING),
            ("readiness", states.NOT_SERVING),
            ("envoy.service.ext_proc.v3.ExternalProcessor", states.NOT_SERVING),
        ):
            asked = health_pb2.HealthCheckRequest(service=name)
            assert (await health.Check(asked, wait_for_ready=True)).status == expected
            assert (await anext(aiter(health.Watch(asked)))).status == expected
        assert len((await health.List(health_pb2.HealthListRequest())).statuses) == 4
        with pytest.raises(grpc.aio.AioRpcError, match="no such service"):
            await health.Check(health_pb2.HealthCheckRequest(service="other"))
        envoy = Envoy(channel)
        await envoy.asks()
        assert (await envoy.refused())[0] == 503


async def test_with_a_certificate_it_is_grpc_over_tls() -> None:
    port = free_port()
    files = ("--tls-cert", str(TLS / "localhost.pem"), "--tls-key", str(TLS / "localhost.key"))
    trusting = grpc.ssl_channel_credentials((TLS / "localhost.pem").read_bytes())
    async with (
        router(["http://127.0.0.1:1"], "--epp-port", str(port), *files),
        grpc.aio.secure_channel(f"localhost:{port}", trusting) as channel,
    ):
        answer = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), wait_for_ready=True
        )
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_port_that_is_taken_is_one_line_at_the_start_and_nothing_has_listened() -> None:
    async with router(["http://127.0.0.1:1"]) as other:
        port = other.url.rpartition(":")[2]
        with pytest.raises(AssertionError) as caught:  # "listening" never comes
            async with router(["http://127.0.0.1:1"], "--epp-port", port):
                pass
    said = str(caught.value)
    assert said.endswith(f"kv-router: cannot listen on 127.0.0.1:{port} for --epp-port\n")
    assert "Traceback" not in said


PROGRAM = """
import sys
sys.modules["grpc"] = None  # as if it had not been installed
from router.cli import main
main([*sys.argv[1:], "--port", "0", "--worker", "http://127.0.0.1:1"])
"""


@pytest.mark.parametrize("how", [["epp"], ["serve", "--epp-port", "1"]])
def test_without_the_extra_it_is_said_what_to_install_and_nothing_else(how: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *how], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr == "kv-router: --epp-port: grpc is not installed: expected kv-router[epp]\n"
