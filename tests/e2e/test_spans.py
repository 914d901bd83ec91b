"""Spans of real requests, as an OTLP receiver gets them."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.e2e.collector import Collector, collector
from tests.e2e.pairs import pairs
from tests.e2e.processes import both, joined, router
from tests.e2e.scripted import engine_up, posts
from tests.proxy.scripted import Peer, Worker, answer, plays
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


BODY = {"model": "stand-in", "prompt": [1, 2, 3]}
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}
COUNTS = b'{"usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}}'
SERVER, CLIENT = 2, 3


@asynccontextmanager
async def traced(*options: str) -> AsyncIterator[tuple[Worker, Collector, httpx2.AsyncClient]]:
    """Run the router in front of a worker; the spans have come when the context is left."""
    async with collector() as found, engine_up(plays(answer(COUNTS))) as worker:
        where = ("--otlp", found.url)
        async with (
            router([worker.url], *where, *options) as front,
            httpx2.AsyncClient(base_url=front.url) as client,
        ):
            await joined(client, 1)
            yield worker, found, client
        await until(lambda: found.spans, "spans")


def header(worker: Worker, name: bytes) -> list[bytes]:
    """Return a field of the last POST."""
    head = posts(worker)[-1][0]
    lines = [line.split(b": ", 1) for line in head.split(b"\r\n") if b": " in line]
    return [line[1] for line in lines if line[0].lower() == name]


async def test_a_request_continues_its_clients_trace_and_the_worker_the_routers() -> None:
    async with traced() as (worker, found, client):
        got = await client.post("/v1/completions", json=BODY, headers=PARENT | {"x-request-id": "mine"})
        assert got.status_code == 200
        assert got.headers["x-request-id"] == "mine"
        (onward,) = header(worker, b"traceparent")
        assert header(worker, b"tracestate") == [b"vendor=1"]
        assert header(worker, b"x-request-id") == [b"mine"]
    (whole,) = found.named("POST /v1/completions")
    (sent,) = found.named("text_completion stand-in")
    assert (whole.trace, whole.parent, whole.kind) == (TRACE, SPAN, SERVER)
    assert (sent.trace, sent.parent, sent.kind) == (TRACE, whole.id, CLIENT)
    assert onward.decode() == f"00-{TRACE}-{sent.id}-01"
    assert found.paths[0] == b"/v1/traces"
    assert found.resource["service.name"] == "kv-router"
    assert whole.said["http.response.status_code"] == 200
    assert whole.said["kv_router.request_id"] == "mine"


async def test_spans_say_what_was_planned_chosen_and_reported_and_what_fails_says_so() -> None:
    async with traced() as (worker, found, client):
        await client.post("/v1/completions", json=BODY)
        got = await client.post("/v1/completions", json=BODY | {"model": "another"})
        assert got.status_code == 404
    whole, failed = found.named("POST /v1/completions")
    (planned,), (chosen,) = found.named("plan"), found.named("choose")
    (sent,) = found.named("text_completion stand-in")
    assert whole.parent == failed.parent == ""
    assert {planned.parent, chosen.parent, sent.parent} == {whole.id}
    times = [whole.began, planned.ended, chosen.began, chosen.ended, sent.began, sent.ended, whole.ended]
    assert times == sorted(times)
    assert planned.said["kv_router.prompt_tokens"] == 3
    assert (chosen.said["kv_router.policy"], chosen.said["kv_router.worker"]) == ("kv", worker.url)
    assert sent.said["gen_ai.operation.name"] == "text_completion"
    assert sent.said["gen_ai.request.model"] == "stand-in"
    assert sent.said["gen_ai.provider.name"] == "sglang"
    assert sent.said["gen_ai.usage.input_tokens"] == 3
    assert sent.said["gen_ai.usage.cache_read.input_tokens"] == 2
    assert sent.said["server.address"] == "127.0.0.1"
    assert failed.said["error.type"] == "model_not_found"
    assert failed.said["http.response.status_code"] == 404
    assert not any(span.failed for span in found.spans)  # it was the client's fault


async def test_an_answer_that_is_cut_has_failed_though_its_status_is_200() -> None:
    async def cut(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        await peer.send(b"transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
        peer.close()

    async with collector() as found, engine_up(cut) as worker:
        where = ("--otlp", found.url)
        async with router([worker.url], *where) as front, httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 1)
            assert (await client.post("/v1/completions", json=BODY)).status_code == 200
    (whole,), (sent,) = found.named("POST /v1/completions"), found.named("text_completion stand-in")
    assert whole.said["error.type"] == "worker_failed"
    assert whole.failed
    assert sent.failed


async def test_a_trace_that_the_client_does_not_sample_is_passed_on_and_not_sent() -> None:
    async with traced() as (worker, found, client):
        unsampled = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
        await client.post("/v1/completions", json=BODY, headers=unsampled)
        (onward,) = header(worker, b"traceparent")
        assert onward.decode().startswith(f"00-{TRACE}-")
        assert onward.endswith(b"-00")
        await client.post("/v1/completions", json=BODY)
    assert TRACE not in {span.trace for span in found.spans}


async def test_both_halves_of_a_pair_continue_one_span() -> None:
    async with collector() as found:
        async with pairs("sglang", router_options=("--otlp", found.url)) as fleet:
            got = await fleet.client.post("/v1/completions", json=BODY)
            assert got.status_code == 200
            prefill, decode = fleet.urls("prefill")[0], fleet.urls("decode")[0]
        (sent,) = found.named("text_completion stand-in")
        assert sent.said["kv_router.prefill_worker"] == prefill
        assert sent.said["kv_router.worker"] == decode
        assert len(found.named("choose")) == 2


async def test_without_tracing_a_trace_passes_unchanged() -> None:
    async with (
        engine_up(plays(answer(COUNTS))) as worker,
        router([worker.url]) as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        await joined(client, 1)
        await client.post("/v1/completions", json=BODY, headers=PARENT)
        assert header(worker, b"traceparent") == [PARENT["traceparent"].encode()]
        assert header(worker, b"tracestate") == [b"vendor=1"]


async def test_a_collector_that_is_not_there_costs_no_request() -> None:
    async with both(router_options=("--otlp", "http://127.0.0.1:9")) as (_, _, client):
        for _ in range(5):
            assert (await client.post("/v1/completions", json=BODY)).status_code == 200


async def test_a_collector_that_takes_no_spans_is_told_of_and_so_is_one_that_takes_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    async with collector() as gone:
        pass
    where = ("--otlp", gone.url)
    async with engine_up(plays(answer(COUNTS))) as worker, router([worker.url], *where) as front:
        async with httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 1)

            async def said(what: bytes) -> bool:
                assert (await client.post("/v1/completions", json=BODY)).status_code == 200
                return any(what in line for line in front.log)

            await until_awaited(lambda: said(b" WARNING spans cannot be sent"), "it is told")
            assert "kv_router_spans_lost_total 0\n" not in (await client.get("/metrics")).text
            async with collector(int(gone.url.rpartition(":")[2])):
                await until_awaited(lambda: said(b" INFO spans are sent again; "), "the end is told")
        assert sum(b"spans cannot be sent" in line for line in front.log) == 1
        assert not any(b" ERROR " in line for line in front.log)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_propagators_that_others_need_are_nothing_to_the_router(processes: str) -> None:
    options = ["serve", "--port=0", "--worker=http://127.0.0.1:1", f"--processes={processes}"]
    ended = subprocess.run(
        [sys.executable, "-m", "router", *options, "--policy=none_such:function"],
        env={**os.environ, "OTEL_PROPAGATORS": "tracecontext,none-such"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()  # what is wrong with the policy is found after all imports
    assert line.startswith("kv-router: --policy none_such:function: cannot be loaded: ")


PROGRAM = """
import sys
sys.modules["opentelemetry.sdk"] = None  # as if it had not been installed
from router.cli import main
main(["serve", "--port", "0", "--worker", "http://127.0.0.1:1", "--otlp", "http://127.0.0.1:9"])
"""


def test_without_the_extra_it_is_said_what_to_install() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr == "kv-router: --otlp: the extra is not installed: pip install 'kv-router[otel]'\n"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
            "OTEL_BSP_MAX_QUEUE_SIZE: expected a whole number above 0",
        ),
        (
            {"OTEL_BSP_SCHEDULE_DELAY": "abc"},
            "OTEL_BSP_SCHEDULE_DELAY: expected a whole number above 0",
        ),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "2"}, "the variables OTEL_* do not fit: "),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "-1"}, "the variables OTEL_* do not fit: OTEL_SPAN_ATTRIBUTE_"),
    ],
)
def test_a_variable_that_is_wrong_is_one_line(variables: dict[str, str], said: str) -> None:
    options = ["serve", "--port=0", "--worker=http://127.0.0.1:1", "--otlp=http://127.0.0.1:9"]
    ended = subprocess.run(
        [sys.executable, "-m", "router", *options],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"kv-router: {said}")
