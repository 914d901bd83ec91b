from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from router.observe.exposition import Exposition
from router.observe.metrics import Metrics
from router.observe.rows import BreakerRow, RankRow, WorkerRow
from router.observe.table import METRICS, PREFIX, Definition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import Metric

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
URL = "http://[::1]:30000"


def counts() -> Metrics:
    metrics = Metrics()
    metrics.answered("/v1/completions", 200, 0.2)
    metrics.retries += 1
    metrics.token_checks["right"] = 2
    metrics.clients = lambda: {("batch", "limited"): 1}
    metrics.errors["worker"] += 2
    metrics.first_byte.observe(0.02)
    metrics.stages["choose"].observe(0.00002)
    metrics.prompt_tokens += 100
    metrics.overlap_tokens += 64
    metrics.reported(64, 48)
    metrics.decisions["kv", "overlap"] += 3
    return metrics


def rank(number: int = 0) -> RankRow:
    return RankRow(
        rank=number,
        view="live",
        blocks={"GPU": 7, "CPU_PINNED": 3},
        predicted_blocks=2,
        last_seq=41,
        event_age_seconds=0.25,
        gaps=1,
        replays=4,
        resets={"all_blocks_cleared": 5},
        batches=42,
        events={"stored": 6, "removed": 8, "cleared": 5},
        orphans=9,
        undecodable=10,
        skipped={"group": 11},
    )


def fleet() -> list[WorkerRow]:
    return [
        WorkerRow(
            url=URL,
            state="ready",
            tokens="fastokens",
            breaker=BreakerRow(
                state="open",
                cause="failures",
                in_a_row=5,
                failures={"status": 5},
                changes={"open": {"failures": 2, "reset": 1}, "half_open": {"probe": 1}},
            ),
            refusals=12,
            inflight_requests=3,
            inflight_tokens=900,
            ranks=[rank(0), rank(1)],
        )
    ]


def scrape(rows: Iterable[WorkerRow], accept: str = "") -> dict[str, Metric]:
    body, _ = Exposition(counts(), lambda: rows).render(accept)
    parse: Callable[[str], Iterable[Metric]] = parse_openmetrics if accept else parse_text
    return {metric.name: metric for metric in parse(body.decode())}


def value(metrics: dict[str, Metric], sample: str, **labels: str) -> float:
    found = [s.value for m in metrics.values() for s in m.samples if s.name == sample and s.labels == labels]
    assert len(found) == 1, (sample, labels, found)
    return found[0]


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_every_metric_of_the_table_is_there_in_either_format(accept: str) -> None:
    metrics = scrape(fleet(), accept)
    for definition in METRICS:
        family = metrics[PREFIX + definition.name]
        assert family.type == definition.kind
        assert family.documentation == definition.help
        assert family.samples
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(definition.labels)


def test_nothing_of_ours_is_there_that_the_table_does_not_name() -> None:
    ours = {name for name in scrape(fleet()) if not name.startswith("process_")}
    assert ours == {PREFIX + definition.name for definition in METRICS}


def test_values_are_those_of_counts_and_rows() -> None:
    metrics = scrape(fleet())
    here = {"worker": URL, "rank": "1"}
    assert value(metrics, "kv_router_requests_total", route="/v1/completions", status_class="2xx") == 1
    assert value(metrics, "kv_router_errors_total", fault="worker") == 2
    assert value(metrics, "kv_router_errors_total", fault="capacity") == 0
    assert value(metrics, "kv_router_request_seconds_sum") == 0.2
    assert value(metrics, "kv_router_stage_seconds_bucket", stage="choose", le="2.5e-05") == 1
    assert value(metrics, "kv_router_prediction_error_tokens_bucket", le="-16.0") == 1
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


def test_an_age_that_is_not_known_is_left_out() -> None:
    rows = [WorkerRow(url=URL, state="starting", ranks=[RankRow(rank=0, view="cold")])]
    assert not scrape(rows)["kv_router_event_age_seconds"].samples


def test_a_worker_that_is_gone_is_gone_from_the_next_scrape() -> None:
    rows = fleet()
    exposition = Exposition(counts(), lambda: rows)
    assert URL in exposition.render()[0].decode()
    rows.clear()
    assert URL not in exposition.render()[0].decode()


def test_a_scrape_takes_one_snapshot() -> None:
    taken = []

    def snapshot() -> list[WorkerRow]:
        taken.append(1)
        return fleet()

    exposition = Exposition(counts(), snapshot)
    assert not taken
    exposition.render()
    assert len(taken) == 1


def test_a_label_with_quotes_and_line_breaks_arrives_as_it_was() -> None:
    tier = 'a"b\\c\nd'
    rows = [WorkerRow(url=URL, state="ready", ranks=[RankRow(rank=0, view="live", blocks={tier: 1})])]
    assert value(scrape(rows), "kv_router_blocks", worker=URL, rank="0", tier=tier) == 1


def test_the_content_type_is_that_of_the_format_asked_for() -> None:
    exposition = Exposition(counts(), fleet)
    assert exposition.render()[1].startswith("text/plain")
    assert exposition.render(OPENMETRICS)[1].startswith("application/openmetrics-text")


@pytest.mark.parametrize("definition", METRICS, ids=lambda definition: definition.name)
def test_a_name_ends_in_its_unit_and_only_counters_in_total(definition: Definition) -> None:
    if definition.unit in {"seconds", "tokens", "blocks", "bytes"}:
        assert definition.name.endswith(definition.unit)
    assert not definition.name.endswith(("_total", "_count", "_sum", "_bucket"))
    assert definition.full_name.endswith("_total") == (definition.kind == "counter")


def test_labels_are_few_and_bounded() -> None:
    known = {
        "client",
        "route",
        "status_class",
        "fault",
        "stage",
        "policy",
        "reason",
        "worker",
        "rank",
        "state",
        "tier",
    }
    assert {label for definition in METRICS for label in definition.labels} == known | {
        "kind",
        "cause",
        "mode",
        "outcome",
        "version",
        "python",
    }
