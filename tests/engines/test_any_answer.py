"""Whatever a worker answers, it is described, or it has failed: nothing else comes out."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from router.engines import detect, sglang, vllm
from router.engines.endpoint import Endpoint
from router.errors import UpstreamFailed
from router.fleet.spec import MOST_RANKS, parse_worker
from tests.engines import bodies
from tests.engines.scripted import Answer, scripted

if TYPE_CHECKING:
    from router.engines.description import Description

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
# Values near to right ones go further in than any at random.
NEAR = st.sampled_from(
    [
        "*",
        "::",
        "127.0.0.1",
        "tcp://*:5557",
        "tcp://a:65535",
        "zmq",
        "null",
        "0",
        "1",
        0,
        1,
        2,
        65535,
        -1,
        1e3,
        True,
    ]
)
VALUES = JSON | NEAR
SETTINGS = st.sampled_from(
    [
        "",
        ",dp=3",
        ",kv=tcp://*:7000",
        ",kv=ipc:///run/kv",
        ",bind=true",
        ",replay=tcp://*:65535,topic=t,role=decode",
    ]
)
BROKEN = st.builds(Answer, st.binary() | VALUES, st.sampled_from([200, 204, 400, 404, 500, 503]))
ANSWERS = settings(max_examples=150)


def is_sound(description: Description) -> bool:
    for source in description.sources:
        assert source is None or Endpoint.parse(source.endpoint)
        assert source is None or source.replay is None or Endpoint.parse(source.replay)
    assert None not in description.sources or description.why_no_events
    assert len(description.sources) == description.dp <= MOST_RANKS
    assert description.block_size is None or description.block_size > 0
    return bool(description.model)


async def outcome(routes: dict[str, Answer], given_settings: str) -> None:
    async with scripted(routes) as (worker, upstream):
        spec = parse_worker(worker.url + given_settings)
        with contextlib.suppress(UpstreamFailed):
            assert is_sound(await detect.describe(upstream, spec))
        for engine in (sglang, vllm):
            assert await engine.is_paused(upstream) in {True, False, None}


def fields(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), VALUES, max_size=4)


@ANSWERS
@given(
    info=fields(
        "model_path", "tokenizer_path", "served_model_name", "dp_size", "speculative_algorithm",
        "disaggregation_mode", "startup_time", "version",
    ),
    events=VALUES
    | fields(
        "publisher", "endpoint_host", "endpoint_port_base", "replay_endpoint_port_base", "topic",
        "block_size", "dp_size",
    ),
    models=VALUES,
    given_settings=SETTINGS,
)  # fmt: skip
async def test_any_value_in_any_field_of_sglang(
    info: dict[str, Any], events: Any, models: Any, given_settings: str
) -> None:
    routes = bodies.sglang(events, **info) | {
        "/v1/models": Answer({"data": models}),
        "/ready": Answer(models),
    }
    await outcome(routes, given_settings)


@ANSWERS
@given(
    configs=st.dictionaries(
        st.sampled_from(["0", "1", "2", "10"]) | st.text(),
        VALUES
        | fields("enable_kv_cache_events", "publisher", "endpoint", "replay_endpoint", "topic", "bind"),
        max_size=3,
    ),
    label=st.text(),
    card=VALUES | fields("id", "parent", "root"),
    paused=VALUES,
    given_settings=SETTINGS,
)
async def test_any_value_in_any_field_of_vllm(
    configs: dict[str, Any], label: str, card: Any, paused: Any, given_settings: str
) -> None:
    standard = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:5557"}
    sources = {rank: standard | it if isinstance(it, dict) else it for rank, it in configs.items()}
    routes = bodies.vllm(cache=f'block_size="{label}",enable_prefix_caching="{label}"')
    routes["/kv_event_sources"] = Answer(sources)
    routes["/v1/models"].body["data"].append(card)
    routes["/is_paused"] = Answer({"is_paused": paused})
    await outcome(routes, given_settings)


@ANSWERS
@given(
    base=st.sampled_from([bodies.sglang, bodies.vllm]),
    broken=st.dictionaries(
        st.sampled_from([*bodies.PATHS, *sglang.SERVER_INFO, *sglang.MODEL_INFO, "/ready"]),
        BROKEN,
        max_size=4,
    ),
    given_settings=SETTINGS,
)
async def test_any_answer_on_any_route(base: Any, broken: dict[str, Answer], given_settings: str) -> None:
    await outcome(base() | broken, given_settings)
