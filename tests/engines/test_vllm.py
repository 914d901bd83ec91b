from __future__ import annotations

from typing import Any

import pytest

from router.engines import vllm
from router.engines.description import Description, EventSource
from router.errors import UpstreamFailed
from router.fleet.spec import WorkerSpec, parse_worker
from tests.engines import bodies
from tests.engines.scripted import Answer, scripted

WILD = {"endpoint": "tcp://*:5557"}


async def describe(routes: dict[str, Answer], settings: str = "") -> Description:
    async with scripted(routes) as (worker, upstream):
        return await vllm.describe(upstream, parse_worker(worker.url + settings))


def endpoints(description: Description) -> list[str | None]:
    return [source.endpoint if source else None for source in description.sources]


async def test_a_real_worker_describes_itself_whole() -> None:
    assert await describe(bodies.captured_vllm()) == Description(
        engine="vllm",
        model="tiny",
        aliases=(),
        adapters={},
        block_size=32,
        dp=1,
        sources=(EventSource("tcp://127.0.0.1:15557", "tcp://127.0.0.1:15657", "kv-events", bind=False),),
        why_no_events="",
        bigram=False,
        role="both",
        tokenizer_path="MODEL",
        started="1.79601216722e+09",
        version="0.32.0",
    )


async def test_each_rank_has_the_address_that_it_reports() -> None:
    ranks = [
        {"endpoint": f"tcp://*:{port}", "replay_endpoint": f"tcp://*:{port + 7}"}
        for port in (6000, 6001, 9000)
    ]
    description = await describe(bodies.vllm(*ranks))
    assert endpoints(description) == [f"tcp://127.0.0.1:{port}" for port in (6000, 6001, 9000)]
    assert description.sources[2] is not None
    assert description.sources[2].replay == "tcp://127.0.0.1:9007"


async def test_ranks_that_report_one_address_are_counted_up_from_it() -> None:
    ranks = {"endpoint": "tcp://*:6000", "replay_endpoint": "tcp://*:6100"}
    description = await describe(bodies.vllm(ranks, ranks))
    assert description.sources == (
        EventSource("tcp://127.0.0.1:6000", "tcp://127.0.0.1:6100", "", bind=False),
        EventSource("tcp://127.0.0.1:6001", "tcp://127.0.0.1:6101", "", bind=False),
    )


async def test_ranks_are_ordered_by_number() -> None:
    routes = bodies.vllm(*({"endpoint": f"tcp://*:{6000 + rank}"} for rank in range(11)))
    routes["/kv_event_sources"].body = dict(sorted(routes["/kv_event_sources"].body.items()))
    assert endpoints(await describe(routes)) == [f"tcp://127.0.0.1:{6000 + rank}" for rank in range(11)]


async def test_an_older_release_has_as_many_ranks_as_its_metrics_and_asks_for_kv() -> None:
    routes = bodies.vllm(WILD, WILD)
    del routes["/kv_event_sources"]
    description = await describe(routes)
    assert description.sources == (None, None)
    assert "give kv=tcp://host:port" in description.why_no_events
    given = await describe(routes, ",kv=tcp://*:7000,topic=t")
    assert given.sources == (
        EventSource("tcp://127.0.0.1:7000", None, "t", bind=False),
        EventSource("tcp://127.0.0.1:7001", None, "t", bind=False),
    )
    assert given.why_no_events == ""


@pytest.mark.parametrize(
    "off", [{"enable_kv_cache_events": False}, {"publisher": "null"}, {"publisher": None}]
)
async def test_a_publisher_that_is_off_says_how_to_start_the_engine(off: dict[str, Any]) -> None:
    description = await describe(bodies.vllm(WILD | off))
    assert description.sources == (None,)
    assert "publishes no KV events: start it with --kv-events-config" in description.why_no_events


async def test_prefix_caching_that_is_off_is_the_reason() -> None:
    description = await describe(bodies.vllm(WILD, cache='block_size="16",enable_prefix_caching="False"'))
    assert description.sources == (None,)
    assert "prefix caching is off" in description.why_no_events


async def test_an_engine_that_connects_is_tried_and_the_cause_of_its_silence_is_said() -> None:
    description = await describe(bodies.vllm({"endpoint": "tcp://127.0.0.1:5557"}))
    assert endpoints(description) == ["tcp://127.0.0.1:5557"]
    assert "publisher connects to tcp://127.0.0.1:5557" in description.why_no_events


async def test_an_engine_told_to_bind_a_named_host_is_not_doubted() -> None:
    assert (
        await describe(bodies.vllm({"endpoint": "tcp://127.0.0.1:5557", "bind": True}))
    ).why_no_events == ""


async def test_with_bind_the_router_binds_where_the_engine_connects() -> None:
    description = await describe(bodies.vllm({"endpoint": "tcp://127.0.0.1:5557"}), ",bind=true")
    assert description.sources == (EventSource("tcp://127.0.0.1:5557", None, "", bind=True),)
    assert description.why_no_events == ""


async def test_a_remote_workers_loopback_is_taken_neither_for_events_nor_for_replay() -> None:
    async with scripted(bodies.vllm(WILD | {"replay_endpoint": "tcp://127.0.0.1:5657"})) as (_, upstream):
        description = await vllm.describe(upstream, WorkerSpec(url="http://gpu1:8000"))
    assert description.sources == (EventSource("tcp://gpu1:5557", None, "", bind=False),)


@pytest.mark.parametrize(
    "endpoint", ["inproc://kv", "", None, 5, "tcp://*:0", "tcp://*", "tcp://*:-1", ["tcp://*:1"]]
)
async def test_an_address_that_cannot_be_reached_is_no_events_with_the_reason(endpoint: Any) -> None:
    description = await describe(bodies.vllm({"endpoint": endpoint}))
    assert description.sources == (None,)
    assert "no address to connect to from here" in description.why_no_events


@pytest.mark.parametrize(
    "broken", [Answer({}, 500), Answer({}, 401), Answer(b"<html>"), Answer([1]), Answer(b"[" * 100_000)]
)
async def test_sources_that_cannot_be_read_are_no_events_with_the_reason(broken: Answer) -> None:
    description = await describe(bodies.vllm(WILD) | {"/kv_event_sources": broken})
    assert description.sources == (None,)
    assert f"/kv_event_sources answered {broken.status}" in description.why_no_events


@pytest.mark.parametrize("sources", [{}, {"zero": {}}, {"-1": {}}, {"9" * 30: {}}])
async def test_sources_without_ranks_leave_every_rank_unlisted(sources: dict[str, Any]) -> None:
    description = await describe(bodies.vllm(WILD, WILD) | {"/kv_event_sources": Answer(sources)})
    assert description.sources == (None, None)
    assert "does not list this rank" in description.why_no_events


async def test_a_rank_that_is_not_an_object_publishes_nothing() -> None:
    description = await describe(bodies.vllm(WILD) | {"/kv_event_sources": Answer({"0": "tcp://*:5557"})})
    assert description.sources == (None,)


@pytest.mark.parametrize(
    "metrics",
    [
        Answer(b"", 404),
        Answer(b"", 500),
        Answer(b"\xff\xfe"),
        Answer(b'vllm:cache_config_info{block_size="None"} 1'),
    ],
)
async def test_metrics_that_say_nothing_leave_the_block_size_to_the_events(metrics: Answer) -> None:
    description = await describe(bodies.vllm(WILD) | {"/metrics": metrics})
    assert (description.block_size, description.started) == (None, None)
    assert endpoints(description) == ["tcp://127.0.0.1:5557"]


async def test_labels_may_hold_quotes_and_braces() -> None:
    cache = 'note="a\\"b},block_size=\\"7\\"",block_size="16",enable_prefix_caching="True"'
    assert (await describe(bodies.vllm(WILD, cache=cache))).block_size == 16


async def test_the_operators_settings_win() -> None:
    description = await describe(
        bodies.vllm(WILD | {"topic": "kv"}), ",kv=ipc:///run/kv,topic=,block-size=128,role=decode"
    )
    assert description.sources == (EventSource("ipc:///run/kv", None, "", bind=False),)
    assert (description.block_size, description.role) == (128, "decode")


async def test_further_names_are_aliases_and_a_parent_makes_an_adapter() -> None:
    routes = bodies.vllm(WILD)
    routes["/v1/models"] = bodies.models(
        "tiny", "tiny-again", root="/m", adapters={"sql": "tiny", "law": "tiny"}
    )
    description = await describe(routes)
    assert (description.model, description.aliases, description.tokenizer_path) == (
        "tiny",
        ("tiny-again",),
        "/m",
    )
    assert description.adapters == {"sql": "tiny", "law": "tiny"}


@pytest.mark.parametrize("version", [Answer(b"", 404), Answer({"version": 3}), Answer(b"0.32")])
async def test_a_worker_is_described_without_its_version(version: Answer) -> None:
    assert (await describe(bodies.vllm(WILD) | {"/version": version})).version is None


@pytest.mark.parametrize(
    "models",
    [
        Answer(b"", 404),
        Answer(b"", 500),
        Answer(b"{"),
        Answer({}),
        Answer({"data": [5, {"id": 3}]}),
        Answer([]),
    ],
)
async def test_a_worker_that_names_no_model_is_an_upstream_failure(models: Answer) -> None:
    with pytest.raises(UpstreamFailed, match="GET /v1/models"):
        await describe(bodies.vllm(WILD) | {"/v1/models": models})


@pytest.mark.parametrize(
    ("paused", "sleeping", "expected"),
    [
        (Answer({"is_paused": True}), Answer({"is_sleeping": False}), True),
        (Answer({"is_paused": False}), Answer({"is_sleeping": True}), True),
        (Answer({"is_paused": False}), Answer({"is_sleeping": False}), False),
        (Answer({"is_paused": False}), Answer(b"", 404), False),
        (Answer(b"", 404), Answer({"is_sleeping": False}), False),
        (Answer(b"", 404), Answer({"is_sleeping": True}), True),
        (Answer(b"", 404), Answer(b"", 404), None),
        (Answer({"is_paused": "no"}), Answer(b"", 500), None),
    ],
)
async def test_a_pause_or_a_sleep_is_a_pause(
    paused: Answer, sleeping: Answer, *, expected: bool | None
) -> None:
    async with scripted({"/is_paused": paused, "/is_sleeping": sleeping}) as (_, upstream):
        assert await vllm.is_paused(upstream) is expected
