from __future__ import annotations

from typing import Any

import pytest

from router.engines import sglang
from router.engines.description import Description, EventSource
from router.errors import UpstreamFailed
from router.fleet.spec import WorkerSpec, parse_worker
from tests.engines import bodies
from tests.engines.scripted import Answer, scripted


async def describe(routes: dict[str, Answer], settings: str = "") -> Description:
    async with scripted(routes) as (worker, upstream):
        return await sglang.describe(upstream, parse_worker(worker.url + settings))


async def described_as(url: str, routes: dict[str, Answer]) -> Description:
    async with scripted(routes) as (_, upstream):
        return await sglang.describe(upstream, WorkerSpec(url=url))


def endpoints(description: Description) -> list[str | None]:
    return [source.endpoint if source else None for source in description.sources]


async def test_a_worker_describes_itself_whole() -> None:
    assert await describe(bodies.sglang({"replay_endpoint_port_base": 5657})) == Description(
        engine="sglang",
        model="qwen",
        aliases=(),
        adapters={},
        block_size=64,
        dp=1,
        sources=(EventSource("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5657", "kv", bind=False),),
        why_no_events="",
        bigram=False,
        role="both",
        tokenizer_path="/models/qwen",
        started="21.5",
        version="0.5.23",
        bootstrap_port=8998,
    )


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "::", "[::]", "", None])
async def test_a_wildcard_host_is_the_host_of_the_workers_url(host: str | None) -> None:
    routes = bodies.sglang({"endpoint_host": host})
    assert endpoints(await described_as("http://[fd00::7]:30000", routes)) == ["tcp://[fd00::7]:5557"]
    assert endpoints(await described_as("http://gpu1", routes)) == ["tcp://gpu1:5557"]


async def test_each_rank_has_its_own_ports() -> None:
    description = await describe(bodies.sglang({"dp_size": 3, "replay_endpoint_port_base": 5657}, dp_size=9))
    assert description.dp == 3
    assert endpoints(description) == [f"tcp://127.0.0.1:{port}" for port in (5557, 5558, 5559)]
    assert description.sources[2] is not None
    assert description.sources[2].replay == "tcp://127.0.0.1:5659"


async def test_no_kv_events_says_how_to_start_the_engine() -> None:
    description = await describe(bodies.sglang(None, dp_size=2))
    assert description.sources == (None, None)
    assert description.block_size is None
    assert description.why_no_events.startswith(
        "the engine publishes no KV events: start it with --kv-events"
    )


async def test_an_older_release_that_says_nothing_of_events_asks_for_kv() -> None:
    routes = bodies.sglang()
    del routes["/server_info"].body["kv_events"]
    routes["/get_server_info"] = routes.pop("/server_info")
    description = await describe(routes)
    assert description.sources == (None,)
    assert "give kv=tcp://host:port" in description.why_no_events
    assert endpoints(await describe(routes, ",kv=tcp://*:7000")) == ["tcp://127.0.0.1:7000"]
    assert (await describe(routes, ",kv=tcp://*:7000")).why_no_events == ""


async def test_paths_missing_from_server_info_are_asked_of_model_info() -> None:
    routes = bodies.sglang(model_path=None, tokenizer_path=None, served_model_name=None)
    routes["/v1/models"] = Answer(b"", 404)
    routes["/get_model_info"] = Answer({"model_path": "/m", "tokenizer_path": "/t"})
    description = await describe(routes)
    assert (description.model, description.tokenizer_path) == ("/m", "/t")


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ("yes", "kv_events that is str"),
        ([], "kv_events that is list"),
        ({"publisher": "null"}, "publisher is 'null', not 'zmq'"),
        ({"publisher": None}, "publisher is None"),
        ({"dp_size": "x"}, "dp_size of 'x'"),
        ({"dp_size": 10**9}, "dp_size of 1000000000"),
        ({"dp_size": True}, "dp_size of True"),
        ({"endpoint_port_base": -5557}, "no usable address for rank 0"),
        ({"endpoint_port_base": 70000}, "no usable address for rank 0"),
        ({"endpoint_port_base": "5557"}, "no usable address for rank 0"),
        ({"endpoint_host": "a b"}, "no usable address for rank 0"),
    ],
)
async def test_events_that_make_no_sense_are_no_events_with_the_reason(events: Any, reason: str) -> None:
    description = await describe(bodies.sglang(events))
    assert description.sources == (None,)
    assert reason in description.why_no_events


async def test_a_rank_past_the_last_port_has_no_events() -> None:
    description = await describe(bodies.sglang({"endpoint_port_base": 65535, "dp_size": 2}))
    assert endpoints(description) == ["tcp://127.0.0.1:65535", None]
    assert "rank 1" in description.why_no_events


async def test_a_wrong_topic_or_replay_port_costs_only_itself() -> None:
    description = await describe(
        bodies.sglang({"topic": 5, "replay_endpoint_port_base": -1, "block_size": "64"})
    )
    assert description.sources == (EventSource("tcp://127.0.0.1:5557", None, "", bind=False),)
    assert description.block_size is None


@pytest.mark.parametrize(
    ("algorithm", "bigram"),
    [
        *((name, True) for name in ("EAGLE", "EAGLE3", "eagle", "MTP", "NEXTN")),
        *((name, False) for name in ("NGRAM", "STANDALONE", "", None, 5)),
    ],
)
async def test_bigrams_come_with_the_speculative_algorithms_that_use_them(
    algorithm: Any, *, bigram: bool
) -> None:
    assert (await describe(bodies.sglang(speculative_algorithm=algorithm))).bigram is bigram


@pytest.mark.parametrize(
    ("mode", "role"),
    [("null", "both"), ("prefill", "prefill"), ("decode", "decode"), (None, "both"), (7, "both")],
)
async def test_the_disaggregation_mode_is_the_role(mode: Any, role: str) -> None:
    assert (await describe(bodies.sglang(disaggregation_mode=mode))).role == role


@pytest.mark.parametrize(
    ("told", "port"), [(30001, 30001), (None, 8998), ("30001", 8998), (0, 8998), (70000, 8998)]
)
async def test_the_bootstrap_port_is_the_workers_own_or_the_default(told: Any, port: int) -> None:
    description = await describe(bodies.sglang(disaggregation_bootstrap_port=told))
    assert description.bootstrap_port == port


async def test_the_operators_role_wins() -> None:
    assert (await describe(bodies.sglang(disaggregation_mode="decode"), ",role=prefill")).role == "prefill"


async def test_a_decode_worker_is_subscribed_to_but_its_silence_has_a_reason() -> None:
    description = await describe(bodies.sglang(disaggregation_mode="decode"))
    assert endpoints(description) == ["tcp://127.0.0.1:5557"]
    assert "decode radix cache" in description.why_no_events


async def test_the_operators_settings_win() -> None:
    settings = ",kv=tcp://gpu9:7000,replay=tcp://*:7100,topic=mine,block-size=16,dp=2"
    description = await describe(bodies.sglang({"dp_size": 4, "replay_endpoint_port_base": 5657}), settings)
    assert description.block_size == 16
    assert description.sources == (
        EventSource("tcp://gpu9:7000", "tcp://127.0.0.1:7100", "mine", bind=False),
        EventSource("tcp://gpu9:7001", "tcp://127.0.0.1:7101", "mine", bind=False),
    )


async def test_an_address_given_for_a_worker_that_publishes_nothing_is_tried_and_doubted() -> None:
    description = await describe(bodies.sglang(None), ",kv=tcp://*:7000")
    assert endpoints(description) == ["tcp://127.0.0.1:7000"]
    assert "publishes no KV events" in description.why_no_events


async def test_a_given_address_without_room_for_the_workers_ranks_covers_the_first_ones() -> None:
    description = await describe(bodies.sglang({"dp_size": 2}), ",kv=ipc:///run/kv,replay=ipc:///run/replay")
    assert endpoints(description) == ["ipc:///run/kv", None]
    assert description.why_no_events == "kv=ipc:///run/kv has no address for rank 1"


async def test_an_engine_that_connects_is_tried_and_the_cause_of_its_silence_is_said() -> None:
    description = await describe(bodies.sglang({"endpoint_host": "10.0.0.9"}))
    assert endpoints(description) == ["tcp://10.0.0.9:5557"]
    assert "publisher connects to tcp://10.0.0.9:5557" in description.why_no_events
    assert "bind=true" in description.why_no_events


async def test_with_bind_the_router_binds_where_the_engine_connects() -> None:
    description = await describe(bodies.sglang({"endpoint_host": "10.0.0.9"}), ",bind=true")
    assert description.sources == (EventSource("tcp://*:5557", None, "kv", bind=True),)
    assert description.why_no_events == ""


async def test_bind_for_an_engine_that_binds_is_doubted() -> None:
    assert "drop bind=true" in (await describe(bodies.sglang(), ",bind=true")).why_no_events


async def test_bind_on_a_given_address_keeps_it() -> None:
    description = await describe(bodies.sglang(), ",bind=true,kv=tcp://*:7000")
    assert description.sources == (EventSource("tcp://*:7000", None, "kv", bind=True),)


async def test_a_remote_workers_loopback_is_never_taken_for_ours() -> None:
    description = await described_as("http://gpu1:30000", bodies.sglang({"endpoint_host": "127.0.0.1"}))
    assert description.sources == (None,)
    assert "its own machine only" in description.why_no_events


async def test_a_served_name_of_its_own_comes_before_the_listed_ones() -> None:
    routes = bodies.sglang(served_model_name="mine")
    routes["/v1/models"] = bodies.models("qwen", adapters={"sql": "qwen"})
    description = await describe(routes)
    assert (description.model, description.aliases) == ("mine", ("qwen",))
    assert description.adapters == {"sql": "qwen"}


@pytest.mark.parametrize("broken", [Answer(b"", 500), Answer(b"{"), Answer(b"[1]"), Answer(b"[" * 100_000)])
async def test_a_worker_is_described_without_its_list_of_models(broken: Answer) -> None:
    assert (await describe(bodies.sglang() | {"/v1/models": broken})).model == "qwen"


@pytest.mark.parametrize(
    "broken",
    [Answer({}, 500), Answer({}, 401), Answer(b"{"), Answer(b"\xff"), Answer([]), Answer(b"[" * 100_000)],
)
async def test_a_server_info_that_cannot_be_read_is_an_upstream_failure(broken: Answer) -> None:
    with pytest.raises(UpstreamFailed, match="GET /server_info"):
        await describe(bodies.sglang() | {"/server_info": broken})


async def test_a_worker_without_any_model_name_is_an_upstream_failure() -> None:
    routes = bodies.sglang(served_model_name=None, model_path=3) | {"/v1/models": Answer({"data": "none"})}
    with pytest.raises(UpstreamFailed, match="names no model"):
        await describe(routes)


async def test_a_worker_that_is_not_there_is_an_upstream_failure() -> None:
    async with scripted({}) as (worker, _):
        url = worker.url
    async with scripted({}) as (_, upstream):
        pass
    with pytest.raises(UpstreamFailed):
        await sglang.describe(upstream, WorkerSpec(url=url))


@pytest.mark.parametrize(
    ("started", "expected"),
    [(1, "1"), ("2026-01-01", "2026-01-01"), (None, None), (True, None), ([1], None)],
)
async def test_the_start_time_is_taken_as_it_comes(started: Any, expected: str | None) -> None:
    assert (await describe(bodies.sglang(startup_time=started))).started == expected


@pytest.mark.parametrize(("status", "paused"), [(200, False), (503, True), (404, None), (500, None)])
async def test_ready_tells_a_pause(status: int, *, paused: bool | None) -> None:
    async with scripted({"/ready": Answer(b"", status)}) as (_, upstream):
        assert await sglang.is_paused(upstream) is paused


def test_one_rank_needs_no_pin() -> None:
    assert sglang.rank_headers(0, 1) == ()
    assert sglang.rank_headers(0, 2) == ((b"x-data-parallel-rank", b"0"),)
    assert sglang.rank_headers(11, 16) == ((b"x-data-parallel-rank", b"11"),)


async def test_every_rank_can_have_a_host_of_its_own() -> None:
    spec = "http://127.0.0.1:1,kv=tcp://a:5557|ipc:///run/b,replay=tcp://a:1|tcp://[fd00::7]:2,dp=2"
    async with scripted(bodies.sglang(None)) as (_, upstream):
        said = await sglang.describe(upstream, parse_worker(spec))
    assert [source and (source.endpoint, source.replay) for source in said.sources] == [
        ("tcp://a:5557", "tcp://a:1"),
        ("ipc:///run/b", "tcp://[fd00::7]:2"),
    ]
