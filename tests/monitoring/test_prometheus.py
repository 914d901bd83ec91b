"""deploy/prometheus is right, by Prometheus's own tool and by the table of metrics."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.e2e.processes import both
from tests.monitoring.checking import mistakes
from tests.monitoring.known import PROMETHEUS, rules

if TYPE_CHECKING:
    from pathlib import Path

DOCS = PROMETHEUS.parent.parent / "docs"
ALERTS = rules("alerts")
EVERY = [*rules("recording"), *ALERTS]


def promtool(*arguments: str | Path, text: str = "") -> str:
    """Run promtool, and return what it says; it must be content."""
    tool = shutil.which("promtool")
    assert tool, "promtool is missing: install Debian's package prometheus"
    ended = subprocess.run(
        [tool, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    return said


def seconds(text: str) -> int:
    """Return how long a time of Prometheus's is."""
    parts: list[tuple[str, str]] = re.findall(r"([0-9]+)([hms])", text)
    return sum(int(count) * {"h": 3600, "m": 60, "s": 1}[unit] for count, unit in parts)


def test_promtool_accepts_the_configuration_and_finds_its_rules() -> None:
    assert "2 rule files found" in promtool("check", "config", PROMETHEUS / "prometheus.yml")


def test_promtool_finds_nothing_to_complain_of_in_the_rules() -> None:
    said = promtool("check", "rules", *(PROMETHEUS / "rules").glob("*.yml"))
    assert f"{len(ALERTS)} rules found" in said


@pytest.mark.parametrize("name", ["alerts", "recording"])
def test_promtools_unit_tests_of_the_rules_pass(name: str) -> None:
    assert "SUCCESS" in promtool("test", "rules", PROMETHEUS / "tests" / f"{name}_test.yml")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_seen_to_fire_and_to_be_quiet(alert: dict[str, str]) -> None:
    tests = yaml.safe_load((PROMETHEUS / "tests" / "alerts_test.yml").read_text())["tests"]
    found = [test["alert_rule_test"] for test in tests if test["name"].split()[0] == alert["alert"]]
    assert {one["alertname"] for asked in found for one in asked} == {alert["alert"]}
    assert [[bool(one["exp_alerts"]) for one in asked] for asked in found] == [[False, True], [False]]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_seen_to_be_quiet_until_it_fires(alert: dict[str, str]) -> None:
    """So that its time can be neither shortened nor lengthened."""
    made = yaml.safe_load((PROMETHEUS / "tests" / "alerts_test.yml").read_text())
    interval = seconds(made["evaluation_interval"])
    (asked,) = (
        test["alert_rule_test"] for test in made["tests"] if test["name"] == f"{alert['alert']} fires"
    )
    before, firing = (seconds(one["eval_time"]) for one in asked)
    # promtool evaluates groups in any order: what another records may be seen one evaluation later.
    most = 2 if ":kv_router" in alert["expr"] else 1
    assert interval <= firing - before <= most * interval
    assert firing >= seconds(alert.get("for", "0s"))


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: str(rule.get("alert") or rule.get("record")))
def test_a_rule_names_only_metrics_labels_and_values_that_there_are(rule: dict[str, str]) -> None:
    assert mistakes(rule["expr"]) == []


def test_a_wrong_rule_would_be_found() -> None:
    assert mistakes("sum by (wroker) (kv_router_build_info)") == ["none of its metrics has a label wroker"]
    assert mistakes("rate(kv_router_request_total[5m])") == ["there is no metric kv_router_request_total"]
    assert mistakes('kv_router_inflight_requests{rank="0"}')
    assert mistakes('kv_router_view_state{state="stale"}')
    assert mistakes('kv_router_request_seconds_bucket{le="0.3"}')


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_how_urgent_it_is_and_where_its_section_is(alert: dict[str, dict[str, str]]) -> None:
    assert alert["labels"]["severity"] in {"page", "ticket"}
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["runbook"] == f"docs/alerts.md#{str(alert['alert']).lower()}"


def test_the_page_of_alerts_has_a_section_for_each_in_their_order_and_no_other() -> None:
    text = (DOCS / "alerts.md").read_text()
    assert re.findall(r"^### (\w+)$", text, re.MULTILINE) == [rule["alert"] for rule in ALERTS]
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        for part in ("**Means.**", "**Does.**", "**Cure.**"):
            assert part in section, section.splitlines()[0]


async def test_promtool_accepts_what_a_running_router_shows() -> None:
    async with both("--tier", "host=2x", count=1) as (_, _, client):
        for stream in (False, True):
            body = {"model": "stand-in", "prompt": list(range(64)), "max_tokens": 4, "stream": stream}
            await client.post("/v1/completions", json=body)
        text = (await client.get("/metrics")).text
    assert await asyncio.to_thread(promtool, "check", "metrics", text=text) == ""
