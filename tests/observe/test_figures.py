"""The figures of several processes add up to those of one router."""

from __future__ import annotations

import asyncio

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from router.observe.exposition import Exposition
from router.observe.figures import Figure, Figures, lasting, merged
from router.observe.metrics import Metrics
from router.observe.rows import RankRow, WorkerRow
from router.observe.table import METRICS

URL = "http://a:1"
REQUESTS = "kv_router_requests_total"
SECONDS = "kv_router_request_seconds"


def process(requests: int, *, state: str = "ready", inflight: int = 0, url: str = URL) -> Figures:
    """Return the figures of a process that has answered so many requests, one second each."""
    counts = Metrics()
    for _ in range(requests):
        counts.answered("/v1/completions", 200, 1.0)
    rank = RankRow(rank=0, view="live", batches=requests)
    row = WorkerRow(url=url, state=state, refusals=requests, inflight_requests=inflight, ranks=[rank])
    return sent(asyncio.run(Exposition(counts, lambda: [row]).figures()))


def sent(found: Figures) -> Figures:
    """Return figures as they arrive in another process."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Figures)


def value(found: Figures, name: str, *labels: str) -> float:
    return next(figure.value for figure in found[name] if figure.labels == labels)


def test_what_processes_do_adds_up_and_of_what_they_see_the_most_is_shown() -> None:
    found = merged([process(2, inflight=1), process(3, inflight=4)])
    assert value(found, REQUESTS, "/v1/completions", "2xx", "other") == 5
    assert value(found, "kv_router_inflight_requests", URL) == 5
    assert value(found, "kv_router_event_batches_total", URL, "0") == 3
    assert value(found, "kv_router_processes") == 2
    (seconds,) = found[SECONDS]
    assert (seconds.value, sum(seconds.counts)) == (5.0, 5)


def test_states_that_differ_are_all_shown() -> None:
    found = merged([process(0), process(0, state="failed")])
    states = {figure.labels for figure in found["kv_router_worker_state"]}
    assert states == {(URL, "ready"), (URL, "failed")}


def test_merged_figures_are_rendered_as_those_of_one_process_are() -> None:
    exposition = Exposition(Metrics(), list)
    body = asyncio.run(exposition.render("", merged([process(2), process(3)])))[0].decode()
    assert f'{REQUESTS}{{model="other",route="/v1/completions",status_class="2xx"}} 5.0' in body
    assert f'{SECONDS}_bucket{{model="other",le="+Inf"}} 5.0' in body
    assert f'{SECONDS}_sum{{model="other"}} 5.0' in body


def test_of_a_process_that_is_gone_what_it_has_counted_goes_on_to_count() -> None:
    gone, here = process(7, inflight=2), process(1)
    found = merged([here, lasting(gone, [here])])
    assert value(found, REQUESTS, "/v1/completions", "2xx", "other") == 8
    assert value(found, "kv_router_worker_refusals_total", URL) == 8
    assert value(found, "kv_router_inflight_requests", URL) == 0
    assert value(found, "kv_router_processes") == 1


def test_of_a_worker_that_is_gone_as_well_nothing_is_left() -> None:
    here = process(1)
    found = merged([here, lasting(process(7, url="http://gone:1"), [here])])
    assert "http://gone:1" not in str(found)
    assert value(found, REQUESTS, "/v1/completions", "2xx", "other") == 8


NAMES = [definition.full_name for definition in METRICS if definition.merge == "sum"][:3]
FIGURES = st.dictionaries(
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 10**6)).map(
        lambda found: [Figure((name,), float(count)) for name, count in found.items()]
    ),
)


@given(st.lists(FIGURES, max_size=4))
def test_sums_are_those_of_all_whatever_the_order(processes: list[Figures]) -> None:
    found, backwards = merged(processes), merged(processes[::-1])
    for name in NAMES:
        expected: dict[tuple[str, ...], float] = {}
        for each in processes:
            for figure in each.get(name, ()):
                expected[figure.labels] = expected.get(figure.labels, 0.0) + figure.value
        for result in (found, backwards):
            assert {figure.labels: figure.value for figure in result[name]} == expected
