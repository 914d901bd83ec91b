from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from router.observe.definition import Scrape
from router.observe.exposition import Exposition
from router.observe.histogram import Histogram
from router.observe.rows import RankRow, WorkerRow
from router.observe.table import METRICS
from tests.observe.seen import URL, counts, fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from router.observe.definition import Definition

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def parsed(text: str, *, openmetrics: bool) -> dict[str, Metric]:
    parse: Callable[[str], Iterable[Metric]] = parse_openmetrics if openmetrics else parse_text
    return {metric.name: metric for metric in parse(text)}


async def scrape(rows: Iterable[WorkerRow], accept: str = "") -> dict[str, Metric]:
    body, _ = await Exposition(counts(), lambda: rows).render(accept)
    return parsed(body.decode(), openmetrics=bool(accept))


def value(metrics: dict[str, Metric], sample: str, **labels: str) -> float:
    found = [s.value for m in metrics.values() for s in m.samples if s.name == sample and s.labels == labels]
    assert len(found) == 1, (sample, labels, found)
    return found[0]


class Reference(Collector):
    """The same values, for Prometheus's own library to render."""

    def collect(self) -> Iterator[Metric]:
        scrape = Scrape(counts(), fleet())
        for definition in METRICS:
            unit = definition.unit if definition.name.endswith("_" + definition.unit) else ""
            family = Metric(definition.family, definition.help, definition.kind, unit)
            for values, number in definition.read(scrape):
                labels = dict(zip(definition.labels, values, strict=True))
                if isinstance(number, Histogram):
                    add_histogram(family, labels, number)
                else:
                    family.add_sample(definition.full_name, labels, number)
            yield family


def add_histogram(family: Metric, labels: dict[str, str], histogram: Histogram) -> None:
    count = 0
    for bound, more in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        count += more
        text = "+Inf" if bound == float("inf") else str(float(bound))
        family.add_sample(f"{family.name}_bucket", {**labels, "le": text}, count)
    if histogram.bounds[0] >= 0:
        family.add_sample(f"{family.name}_count", labels, count)
        family.add_sample(f"{family.name}_sum", labels, histogram.total)


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
async def test_either_format_is_as_prometheus_own_library_writes_it(accept: str) -> None:
    registry = CollectorRegistry()
    registry.register(Reference())
    generate: Callable[[CollectorRegistry], bytes] = generate_openmetrics if accept else generate_latest
    text = generate(registry)
    expected = parsed(text.decode(), openmetrics=bool(accept))
    found = await scrape(fleet(), accept)
    assert list(found) == list(expected)
    for name, family in expected.items():
        if name.startswith("process_"):
            continue  # of two moments
        assert found[name].samples == family.samples
        assert (found[name].type, found[name].unit) == (family.type, family.unit)
        assert found[name].documentation == family.documentation


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
async def test_every_metric_of_the_table_is_there_with_its_labels_and_no_other_is(accept: str) -> None:
    metrics = await scrape(fleet(), accept)
    assert set(metrics) == {definition.family for definition in METRICS}
    for definition in METRICS:
        family = metrics[definition.family]
        assert family.samples
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(definition.labels)


async def test_values_are_those_of_counts_and_rows() -> None:
    metrics = await scrape(fleet())
    here = {"worker": URL, "rank": "1"}
    route = {"route": "/v1/completions"}
    assert value(metrics, "kv_router_requests_total", **route, status_class="2xx", model="m") == 1
    assert value(metrics, "kv_router_requests_total", **route, status_class="4xx", model="other") == 1
    assert value(metrics, "kv_router_errors_total", fault="worker") == 2
    assert value(metrics, "kv_router_errors_total", fault="capacity") == 0
    assert value(metrics, "kv_router_waiting_requests", model="m") == 3
    assert value(metrics, "kv_router_model_ready", model="gone") == 0
    assert value(metrics, "kv_router_request_seconds_sum", model="m") == 0.2
    assert value(metrics, "kv_router_stage_seconds_bucket", stage="choose", le="2.5e-05") == 1
    assert value(metrics, "kv_router_prediction_error_tokens_bucket", model="m", le="-16.0") == 1
    assert value(metrics, "kv_router_inflight_tokens", worker=URL) == 900
    assert value(metrics, "kv_router_worker_state", worker=URL, state="ready") == 1
    assert value(metrics, "kv_router_breaker_state", worker=URL, state="open") == 1
    assert value(metrics, "kv_router_breaker_changes_total", worker=URL, state="open", cause="reset") == 1
    assert value(metrics, "kv_router_worker_failures_total", worker=URL, kind="status") == 5
    assert value(metrics, "kv_router_worker_refusals_total", worker=URL) == 12
    assert value(metrics, "kv_router_view_state", **here, state="live") == 1
    assert value(metrics, "kv_router_blocks", **here, tier="CPU_PINNED") == 3
    assert value(metrics, "kv_router_resets_total", **here, cause="all_blocks_cleared") == 5
    assert value(metrics, "kv_router_event_age_seconds", **here) == 0.25
    assert value(metrics, "kv_router_shortest_event_lag_seconds", **here) == -0.5


async def test_ages_that_are_not_known_are_left_out() -> None:
    rows = [WorkerRow(url=URL, state="starting", ranks=[RankRow(rank=0, view="connecting")])]
    metrics = await scrape(rows)
    assert not metrics["kv_router_event_age_seconds"].samples
    assert not metrics["kv_router_event_lag_seconds"].samples


async def test_a_worker_that_is_gone_is_gone_from_the_next_scrape() -> None:
    rows = fleet()
    exposition = Exposition(counts(), lambda: rows)
    assert URL in (await exposition.render())[0].decode()
    rows.clear()
    assert URL not in (await exposition.render())[0].decode()


async def test_a_scrape_asks_for_the_rows_once() -> None:
    taken = []

    def rows() -> list[WorkerRow]:
        taken.append(1)
        return fleet()

    exposition = Exposition(counts(), rows)
    assert not taken
    await exposition.render()
    assert len(taken) == 1


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
@pytest.mark.parametrize(
    ("tier", "shown"),
    [
        ('a"b\\cé', 'a"b\\cé'),
        ("a\n\x1b[31m\0\r\x7f\x9b\u202e\ud800", r"a\n\x1b[31m\x00\r\x7f\x9b\u202e\ud800"),
    ],
)
async def test_a_label_arrives_as_it_was_but_for_what_cannot_be_printed(
    tier: str, shown: str, accept: str
) -> None:
    rows = [WorkerRow(url=URL, state="ready", ranks=[RankRow(rank=0, view="live", blocks={tier: 1})])]
    body, _ = await Exposition(counts(), lambda: rows).render(accept)
    assert body.decode().replace("\n", "").isprintable()
    metrics = await scrape(rows, accept)
    assert value(metrics, "kv_router_blocks", worker=URL, rank="0", tier=shown) == 1


async def test_a_number_that_is_none_is_written_as_prometheus_reads_it() -> None:
    ages = {0: float("nan"), 1: float("inf"), 2: -float("inf")}
    ranks = [RankRow(rank=at, view="live", event_age_seconds=age) for at, age in ages.items()]
    metrics = await scrape([WorkerRow(url=URL, state="ready", ranks=ranks)])
    found = [repr(sample.value) for sample in metrics["kv_router_event_age_seconds"].samples]
    assert found == [repr(age) for age in ages.values()]


async def test_counts_may_change_and_workers_leave_while_a_scrape_is_under_way() -> None:
    metrics, many = counts(), [WorkerRow(url=f"http://w:{n}", state="ready") for n in range(3000)]
    work = Exposition(metrics, lambda: iter(many)).render()
    pieces = 0
    while True:
        metrics.answered(f"/v1/{pieces}", 200, 0.1, f"model-{pieces}")
        metrics.decisions[f"policy-{pieces}", "load"] += 1
        try:
            work.send(None)
        except StopIteration as ended:
            body, _ = ended.value
            break
        pieces += 1
    assert pieces > 3
    assert parsed(body.decode(), openmetrics=False)["kv_router_requests"].samples


async def test_the_content_type_is_that_of_the_format_asked_for() -> None:
    exposition = Exposition(counts(), fleet)
    assert (await exposition.render())[1].startswith("text/plain; version=0.0.4")
    assert (await exposition.render(OPENMETRICS))[1].startswith("application/openmetrics-text; version=1.0.0")


@pytest.mark.parametrize("definition", METRICS, ids=lambda definition: definition.name)
def test_a_name_ends_in_its_unit_and_only_counters_in_total(definition: Definition) -> None:
    if definition.unit in {"seconds", "tokens", "blocks", "bytes"}:
        assert definition.name.endswith(definition.unit)
    assert not definition.name.endswith(("_total", "_count", "_sum", "_bucket"))
    assert definition.full_name.endswith("_total") == (definition.kind == "counter")


@pytest.mark.parametrize("definition", METRICS, ids=lambda definition: definition.name)
def test_what_adds_up_over_processes_is_summed_and_a_state_is_not(definition: Definition) -> None:
    states = {"state", "mode", "version", "engine"} & set(definition.labels)
    if definition.kind == "gauge" and states:
        assert definition.merge == "max"
    if definition.kind == "histogram":
        assert definition.merge == "sum"
    if "rank" in definition.labels:
        assert definition.merge != "sum"  # every process hears the same events


def test_labels_are_few_and_bounded() -> None:
    ours = {"route", "status_class", "fault", "stage", "policy", "reason", "state", "outcome", "counted"}
    fleets = {"worker", "rank", "model", "engine", "role", "tier", "kind", "cause", "mode"}
    others = {"client", "version", "python", "source"}
    assert {label for definition in METRICS for label in definition.labels} == ours | fleets | others
