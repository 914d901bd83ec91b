"""The dashboard asks for what there is, and leaves nothing out."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from router.observe.table import METRICS
from tests.monitoring.checking import mistakes
from tests.monitoring.grafana import dashboard
from tests.monitoring.known import PROMETHEUS, names, rules
from tests.monitoring.promql import uses

DASHBOARD: dict[str, Any] = json.loads(dashboard())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ())]
GRAFANA = PROMETHEUS.parent / "grafana"


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_a_query_names_only_metrics_and_labels_that_there_are(title: str, query: str) -> None:
    assert mistakes(query) == [], title


def test_every_metric_of_the_table_is_on_it() -> None:
    asked = {name for _, query in QUERIES for name in uses(query).metrics}
    recorded = {rule["record"]: uses(rule["expr"]).metrics for rule in rules("recording")}
    seen = asked.union(*(recorded[name] for name in asked if name in recorded))
    assert [each.full_name for each in METRICS if seen.isdisjoint(names(each))] == []


def test_choosers_and_annotations_ask_for_what_there_is() -> None:
    choosers = [chooser["definition"] for chooser in DASHBOARD["templating"]["list"][1:]]
    for definition in choosers:
        selector, _, label = definition.removeprefix("label_values(").removesuffix(")").rpartition(", ")
        assert mistakes(f"sum by ({label}) ({selector})") == []
    restarts = DASHBOARD["annotations"]["list"][1]["expr"]
    assert mistakes(restarts) == []


def test_panels_have_places_of_their_own_within_the_columns() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {(x, y) for x in _span(place["x"], place["w"]) for y in _span(place["y"], place["h"])}
        assert max(x for x, _ in cells) < 24
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_a_panel_says_what_it_shows() -> None:
    for panel in PANELS:
        assert panel["type"] in {"row", "alertlist"} or panel["description"], panel["title"]


def test_provisioning_finds_prometheus_and_the_dashboard() -> None:
    provider = yaml.safe_load((GRAFANA / "provisioning/dashboards/kv-router.yml").read_text())
    assert provider["providers"][0]["options"]["path"] == "/var/lib/grafana/dashboards"
    source = yaml.safe_load((GRAFANA / "provisioning/datasources/kv-router.yml").read_text())
    assert source["datasources"][0]["type"] == "prometheus"


def _span(start: int, length: int) -> range:
    return range(start, start + length)
