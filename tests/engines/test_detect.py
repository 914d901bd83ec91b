from __future__ import annotations

import pytest

from router.engines import detect
from router.errors import UpstreamFailed
from router.fleet.spec import parse_worker
from tests.engines import bodies
from tests.engines.scripted import Answer, scripted

WILD = {"endpoint": "tcp://*:5557"}


async def engine_of(routes: dict[str, Answer], settings: str = "") -> str:
    async with scripted(routes) as (worker, upstream):
        return (await detect.describe(upstream, parse_worker(worker.url + settings))).engine


async def test_each_engine_is_found_out() -> None:
    assert await engine_of(bodies.sglang()) == "sglang"
    assert await engine_of(bodies.vllm(WILD)) == "vllm"
    assert await engine_of(bodies.captured_vllm()) == "vllm"


async def test_an_older_sglang_is_found_out() -> None:
    routes = bodies.sglang()
    routes["/get_server_info"] = routes.pop("/server_info")
    assert await engine_of(routes) == "sglang"


async def test_vllms_own_server_info_in_development_mode_is_not_sglangs() -> None:
    assert await engine_of(bodies.vllm(WILD) | {"/server_info": Answer({"vllm_config": "..."})}) == "vllm"
    assert await engine_of(bodies.vllm(WILD) | {"/server_info": Answer(b"", 500)}) == "vllm"


async def test_a_version_does_not_make_sglang_a_vllm() -> None:
    assert await engine_of(bodies.sglang() | {"/version": Answer({"version": "0.5.23"})}) == "sglang"


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_an_engine_that_is_given_is_not_looked_for(engine: str) -> None:
    routes = bodies.sglang() | bodies.vllm(WILD)
    assert await engine_of(routes, f",engine={engine}") == engine


@pytest.mark.parametrize("answer", [Answer(b"", 404), Answer(b"", 503), Answer(b"hello"), Answer({"a": 1})])
async def test_something_else_is_an_upstream_failure_that_says_what_to_do(answer: Answer) -> None:
    with pytest.raises(UpstreamFailed, match="engine=sglang or engine=vllm"):
        await engine_of({"/server_info": answer})


def test_every_engine_offers_the_same_three() -> None:
    for engine in detect.ENGINES.values():
        assert engine.rank_headers(1, 2) == ((b"x-data-parallel-rank", b"1"),)
