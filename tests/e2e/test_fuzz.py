"""Anything may come: no request makes the router fail, hang, or tell of prompts where they do not belong."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.api.routes import ROUTED
from tests.e2e.processes import Running, both
from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    import httpx2
    from hypothesis.strategies import SearchStrategy

# In every prompt and header value; must not be found in any log or metric.
MARK = "Zq7Secret"
MANY = settings(max_examples=300, suppress_health_check=list(HealthCheck))
TOKEN = st.text("abcdefghijklmnopqrstuvwxyz-_0123456789", min_size=1, max_size=20).map(str.encode)
KNOWN = st.sampled_from(
    [
        *(b"accept", b"authorization", b"x-api-key", b"content-type", b"content-encoding", b"x-request-id"),
        *(b"x-forwarded-for", b"forwarded", b"connection", b"te", b"trailer", b"upgrade", b"cookie", b"via"),
        *(b"x-data-parallel-rank", b"x-kv-router-worker", b"x-priority", b"range", b"if-none-match", b"date"),
    ]
)
VALUE = st.binary(max_size=60).map(lambda raw: re.sub(rb"[\x00-\x08\x0a-\x1f\x7f]", b"", raw).strip())
FIELD = st.tuples(KNOWN | TOKEN, VALUE | st.just(MARK.encode()))
RESERVED = {b"host", b"content-length", b"transfer-encoding", b"expect"}
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(MARK)
JSON = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
NAMES = st.sampled_from(
    [
        *(
            "model",
            "prompt",
            "messages",
            "input_ids",
            "text",
            "input",
            "stream",
            "max_tokens",
            "tools",
            "system",
        ),
        *(
            "lora_path",
            "cache_salt",
            "routed_dp_rank",
            "priority",
            "bootstrap_room",
            "kv_transfer_params",
            "n",
        ),
        *(
            "response_format",
            "chat_template_kwargs",
            "add_generation_prompt",
            "stream_options",
            "instructions",
        ),
    ]
)
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "tool"]) | JSON, "content": JSON})
BODY = st.builds(
    lambda base, odd: json.dumps({**base, **odd}).encode("utf-8", "surrogatepass"),
    st.sampled_from(
        [
            {"model": "stand-in", "prompt": MARK},
            {"model": "stand-in", "prompt": [1, 2, 3]},
            {"model": "stand-in", "messages": [{"role": "user", "content": MARK}], "max_tokens": 2},
            {"model": "stand-in", "input": MARK},
            {"text": MARK, "sampling_params": {"max_new_tokens": 2}},
        ]
    ),
    st.dictionaries(NAMES, JSON, max_size=3)
    | st.fixed_dictionaries({"messages": st.lists(MESSAGE, max_size=3)}),
)
RAW = st.binary(max_size=100) | JSON.map(json.dumps).map(lambda text: text.encode("utf-8", "surrogatepass"))


def spoiled(body: bytes, at: int, what: bytes) -> bytes:
    at %= len(body) + 1
    return body[:at] + what + body[at + 1 :]


SPOILED = st.builds(spoiled, BODY, st.integers(0, 1000), st.binary(max_size=3))
PATHS = [path.encode() for path in (*ROUTED, "/v1/embeddings", "/v1/audio/speech", "/explain")]


def port_of(front: Running) -> int:
    return int(front.url.rpartition(":")[2])


def told(port: int, wire: bytes) -> bytes:
    """Return everything that is answered; the connection is to be closed behind it."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(wire)
        data = b""
        while piece := connection.recv(65536):
            data += piece
        return data


def request(path: bytes, fields: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    lines = [b"POST %b HTTP/1.1" % path, b"host: a", b"content-length: %d" % len(body), b"connection: close"]
    lines += [b"%b: %b" % field for field in fields if field[0] not in RESERVED | {b"connection", b"upgrade"}]
    return b"\r\n".join([*lines, b"", body])


def check(port: int, strategy: SearchStrategy[tuple[bytes, list[tuple[bytes, bytes]], bytes]]) -> None:
    @MANY
    @given(strategy)
    def run(asked: tuple[bytes, list[tuple[bytes, bytes]], bytes]) -> None:
        answers = told(port, request(*asked))
        assert re.match(rb"HTTP/1\.1 \d\d\d ", answers), answers[:200]
        head, _, body = answers.partition(b"\r\n\r\n")
        if b"\r\nx-kv-router-worker: " not in head:
            assert answers[9:12] < b"500", answers[:500]
            if not answers[9:12].startswith(b"2"):
                error = json.loads(body)["error"]
                assert set(error) == {"message", "type", "param", "code"}

    run()


async def clean(client: httpx2.AsyncClient, log: list[bytes]) -> None:
    """Nothing is left of what has come, in the accounts, the log or the metrics."""
    rows = (await client.get("/workers")).json()["workers"]
    assert sum(row["inflight_requests"] + row["inflight_tokens"] for row in rows) == 0
    told_of = b"".join(log) + (await client.get("/metrics")).content
    assert MARK.encode() not in told_of
    assert b"Traceback" not in told_of
    good: dict[str, Any] = {"model": "stand-in", "prompt": [1, 2, 3], "max_tokens": 1}
    assert (await client.post("/v1/completions", json=good)).status_code == 200


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("bodies", [BODY, SPOILED | RAW], ids=["odd", "broken"])
async def test_no_header_and_no_body_makes_the_router_fail(
    engine: str, bodies: SearchStrategy[bytes]
) -> None:
    options = ("--log-level", "debug", "--retries", "0", "--forward-input-ids", "on")
    async with both("--engine", engine, count=1, router_options=options) as (_, front, client):
        # Of vLLM's workers none ever takes SGLang's own route.
        paths = [path for path in PATHS if engine == "sglang" or path != b"/generate"]
        asked = st.tuples(st.sampled_from(paths), st.lists(FIELD, max_size=6), bodies)
        await asyncio.to_thread(check, port_of(front), asked)
        await clean(client, front.log)


async def test_no_bytes_at_all_make_it_hang() -> None:
    piece = st.binary(max_size=30) | st.sampled_from(
        [
            *(
                b"\r\n",
                b"POST /v1/completions HTTP/1.1\r\n",
                b"host: a\r\n",
                b"content-length: 5\r\n\r\n",
                b"0\r\n\r\n",
            ),
            *(
                b"transfer-encoding: chunked\r\n\r\n",
                b"5\r\nhello\r\n",
                b"expect: 100-continue\r\n",
                b"GET /health HTTP/1.1",
            ),
        ]
    )
    async with both(count=1, router_options=("--log-level", "debug")) as (_, front, client):
        port = port_of(front)

        @MANY
        @given(st.lists(piece, max_size=12).map(b"".join))
        def run(wire: bytes) -> None:
            with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as connection:
                connection.sendall(wire)
                connection.shutdown(socket.SHUT_WR)
                data = b""
                try:
                    while got := connection.recv(65536):
                        data += got
                except ConnectionResetError:
                    return
            assert not re.search(rb"HTTP/1\.1 50[0234]", data), data

        await asyncio.to_thread(run)
        await clean(client, front.log)
