"""`python -m tests.deploy.rendering`: write deploy/kubernetes anew from the chart in deploy/helm."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from helm_python import Chart

from tests.deploy.values import CHART, DEPLOY

BASE = DEPLOY / "kubernetes" / "base"
COMPONENTS = DEPLOY / "kubernetes" / "components"
# What a component has beyond the base, and with which values the chart has it, too.
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "monitoring": ("podmonitor", {"podMonitor": {"enabled": True}}),
    "autoscaling": (
        "horizontalpodautoscaler",
        {"autoscaling": {"enabled": True}, "config": {"max_worker_inflight": 64}},
    ),
}


@cache
def _chart() -> Chart:
    return Chart.load(CHART)


def rendered(values: dict[str, Any] | None = None, namespace: str = "default") -> dict[str, str]:
    """Return what the chart renders, by the template's name; what renders to nothing is left out."""
    made = _chart().render(values, name="kv-router", namespace=namespace)
    texts = {Path(name).stem: text.strip().removeprefix("---").strip() + "\n" for name, text in made.items()}
    return {name: text for name, text in texts.items() if text.strip()}


def objects(values: dict[str, Any] | None = None, namespace: str = "default") -> list[dict[str, Any]]:
    """Return the objects that the chart makes."""
    texts = rendered(values, namespace).values()
    return [each for text in texts for each in yaml.safe_load_all(text) if each is not None]


def files() -> dict[Path, str]:
    """Return the files of deploy/kubernetes that come from the chart."""
    made = {BASE / f"{name}.yaml": text for name, text in rendered().items()}
    for part, (name, values) in PARTS.items():
        made[COMPONENTS / part / f"{name}.yaml"] = rendered(values)[name]
    return made


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
