"""What engines say of their load is taken as far as it is one, and never for more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.word import EngineLoad
from router.engines import sglang, vllm
from router.engines.description import EventSource
from router.engines.loads import load_stat, sglang_loads, vllm_loads
from router.fleet.spec import parse_worker
from tests.engines import bodies
from tests.engines.scripted import Answer, scripted
from workers.engine.load import Load

STAT = ["LoadStat", 3, 2, 500, 1000, 1, 4096, 700, 64, 12345, 6789]
ROW = {
    "dp_rank": 1,
    "num_running_reqs": 3,
    "num_waiting_reqs": 2,
    "num_waiting_uncached_tokens": 4096,
    "max_total_num_tokens": 1000,
    "token_usage": 0.5,
}
LOAD = EngineLoad(3, 2, 4096, 0.5, 1000)
WORDS = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.integers(), max_size=2)
)


def encoded(words: list[Any]) -> bytes:
    try:
        return msgspec.msgpack.encode(words)
    except OverflowError:
        return b""


def test_a_load_stat_is_read() -> None:
    assert load_stat(msgspec.msgpack.encode(STAT)) == (1, LOAD)
    assert load_stat(msgspec.msgpack.encode([*STAT, "more", {}])) == (1, LOAD)
    assert load_stat(Load(3, 2, 500, 1000, 4096, 700, 64, 1, 1).stat(1)) == (1, LOAD)


@pytest.mark.parametrize(
    "stat", [[], ["LoadStat"], STAT[:6], ["Other", *STAT[1:]], ["LoadStat", -1, *STAT[2:]], {"a": 1}, 7, None]
)
def test_what_is_no_load_stat_is_none(stat: Any) -> None:
    assert load_stat(msgspec.msgpack.encode(stat)) is None


@given(st.one_of(st.binary(max_size=50), st.lists(WORDS, max_size=12).map(encoded)))
def test_whatever_comes_over_a_load_socket_harms_nobody(payload: bytes) -> None:
    found = load_stat(payload)
    assert found is None or isinstance(found[1], EngineLoad)


def test_the_loads_of_sglang_are_read_by_rank() -> None:
    answer = {
        "loads": [ROW, {**ROW, "dp_rank": 0, "token_usage": 7}, "x", {"dp_rank": 2}, {**ROW, "dp_rank": True}]
    }
    assert sglang_loads(answer) == {1: LOAD, 0: EngineLoad(3, 2, 4096, 1.0, 1000)}


@given(
    st.dictionaries(
        st.sampled_from(["loads", "x"]),
        st.one_of(WORDS, st.lists(st.dictionaries(st.sampled_from(sorted(ROW)), WORDS), max_size=3)),
    )
)
def test_whatever_sglang_answers_harms_nobody(answer: dict[str, Any]) -> None:
    for load in sglang_loads(answer).values():
        assert 0 <= load.usage <= 1
        assert min(load.running, load.waiting, load.waiting_tokens, load.capacity_tokens) >= 0


def gauges(*lines: str) -> bytes:
    return "\n".join(("# HELP vllm:num_requests_running How many", *lines, "")).encode()


def test_the_gauges_of_vllm_are_read_by_rank() -> None:
    page = gauges(
        'vllm:num_requests_running{engine="0",model_name="m \\" 1"} 3.0',
        'vllm:num_requests_running{model_name="m",engine="1"} 4.0',
        'vllm:num_requests_waiting{engine="0",model_name="m"} 2.0',
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0',
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25',
        'vllm:kv_cache_usage_perc{engine="1",model_name="m"} NaN',
    )
    assert vllm_loads(page) == {0: EngineLoad(3, 2, 0, 0.25), 1: EngineLoad(4, 0)}


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running 3.0",
        'vllm:num_requests_running{engine="x"} 3.0',
        'vllm:num_requests_running{engine="0"} -3',
        'vllm:num_requests_running{engine="0"}',
        "",
    ],
)
def test_a_line_that_is_no_gauge_of_a_rank_says_nothing(line: str) -> None:
    assert vllm_loads(gauges(line)) == {}


def test_the_page_of_a_real_vllm_is_read() -> None:
    page = bodies.captured_vllm()["/metrics"].body
    assert isinstance(page, bytes)
    assert vllm_loads(page) == {0: EngineLoad(0, 0)}


@given(st.binary(max_size=200))
def test_whatever_is_on_vllms_page_harms_nobody(page: bytes) -> None:
    vllm_loads(b"\nvllm:num_requests_running{" + page)


async def test_both_engines_are_asked_by_one_get() -> None:
    async with scripted({"/v1/loads": Answer({"loads": [ROW]})}) as (_, upstream):
        assert await sglang.loads(upstream) == {1: LOAD}
    page = gauges('vllm:num_requests_running{engine="0"} 3.0')
    async with scripted({"/metrics": Answer(page)}) as (_, upstream):
        assert await vllm.loads(upstream) == {0: EngineLoad(3, 0)}


async def test_an_engine_that_does_not_know_the_question_says_nothing() -> None:
    async with scripted({}) as (_, upstream):
        assert await sglang.loads(upstream) == {}
        assert await vllm.loads(upstream) == {}


async def test_a_worker_names_its_load_sockets_one_for_each_rank() -> None:
    events = {"dp_size": 2, "load_endpoint_port_base": 6000, "load_topic": "load"}
    async with scripted(bodies.sglang(events)) as (worker, upstream):
        said = await sglang.describe(upstream, parse_worker(worker.url))
    assert said.loads == tuple(
        EventSource(f"tcp://127.0.0.1:{6000 + rank}", None, "load", bind=False) for rank in (0, 1)
    )


@pytest.mark.parametrize("port", [None, 0, "6000", 70_000])
async def test_without_a_usable_port_there_is_no_load_socket(port: Any) -> None:
    async with scripted(bodies.sglang({"load_endpoint_port_base": port})) as (worker, upstream):
        assert (await sglang.describe(upstream, parse_worker(worker.url))).loads == ()
