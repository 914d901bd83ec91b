"""The dashboard as Grafana reads it: panels laid out in rows, with the choosers above them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.monitoring.panels import ROWS
from tests.monitoring.queries import description, queries, unit

if TYPE_CHECKING:
    from tests.monitoring.panels import Panel

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_HEIGHTS = {"stat": 4, "alertlist": 4}


def dashboard() -> str:
    """Return deploy/grafana/kv-router.json."""
    return json.dumps(_dashboard(), indent=1) + "\n"


def _dashboard() -> dict[str, Any]:
    return {
        "uid": "kv-router",
        "title": "kv-router",
        "tags": ["kv-router"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _choosers()},
        "annotations": {"list": _annotations()},
        "panels": _laid_out(),
    }


def _choosers() -> list[dict[str, Any]]:
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    return [
        source,
        _chooser("instance", "label_values(kv_router_build_info, instance)"),
        _chooser("model", 'label_values(kv_router_request_seconds_count{instance=~"$instance"}, model)'),
        _chooser("worker", 'label_values(kv_router_worker_state{instance=~"$instance"}, worker)'),
    ]


def _chooser(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _annotations() -> list[dict[str, Any]]:
    return [
        {
            "name": "Alerts",
            "datasource": _SOURCE,
            "enable": True,
            "iconColor": "red",
            "expr": 'ALERTS{alertname=~"KvRouter.*",alertstate="firing"}',
            "titleFormat": "{{alertname}}",
            "textFormat": "{{instance}} {{worker}} {{model}}",
        },
        {
            "name": "Restarts of the router",
            "datasource": _SOURCE,
            "enable": True,
            "iconColor": "orange",
            "expr": 'changes(process_start_time_seconds{job="kv-router",instance=~"$instance"}[1m]) > 0',
            "titleFormat": "Restart",
            "textFormat": "{{instance}}",
        },
    ]


def _laid_out() -> list[dict[str, Any]]:
    """Return all panels with their places; those of a row fill lines from left to right."""
    placed: list[dict[str, Any]] = []
    y = 0
    for title, panels in ROWS.items():
        placed.append(_row(len(placed) + 1, title, y))
        y += 1
        x = tallest = 0
        for panel in panels:
            if x + panel.width > _COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            height = _HEIGHTS.get(panel.drawing, 8)
            placed.append(_panel(len(placed) + 1, panel, {"x": x, "y": y, "w": panel.width, "h": height}))
            x, tallest = x + panel.width, max(tallest, height)
        y += tallest
    return placed


def _row(number: int, title: str, y: int) -> dict[str, Any]:
    place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "id": number,
        "type": panel.drawing,
        "title": panel.title,
        "description": description(panel),
        "gridPos": place,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": unit(panel)}, "overrides": []},
        "options": _options(panel),
        "targets": [
            _target(chr(ord("A") + at), query.expression, query.legend, panel)
            for at, query in enumerate(queries(panel))
        ],
    }
    if panel.drawing == "table":
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]
    return made


def _target(letter: str, expression: str, legend: str, panel: Panel) -> dict[str, Any]:
    target: dict[str, Any] = {
        "refId": letter,
        "datasource": _SOURCE,
        "expr": expression,
        "legendFormat": legend,
    }
    if panel.drawing in {"table", "stat"}:
        target["instant"] = True
    if panel.drawing in {"table", "heatmap"}:
        target["format"] = panel.drawing
    return target


def _options(panel: Panel) -> dict[str, Any]:
    if panel.drawing == "timeseries":
        return {"tooltip": {"mode": "multi", "sort": "desc"}, "legend": {"displayMode": "list", "calcs": []}}
    if panel.drawing == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"]},
            "graphMode": "none",
            "textMode": "value_and_name",
        }
    if panel.drawing == "alertlist":
        states = {"firing": True, "pending": True, "noData": False, "normal": False, "error": True}
        return {"alertName": "KvRouter", "stateFilter": states, "viewMode": "list", "maxItems": 20}
    if panel.drawing == "heatmap":
        return {"calculate": False, "yAxis": {"unit": "short"}, "cellGap": 1}
    return {"showHeader": True}
