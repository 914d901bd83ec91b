"""The schema of the chart's values: of the router's own settings it knows all, of the rest the kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from router.schema import schema

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "kv-router"
VALUES_SCHEMA = CHART / "values.schema.json"
_KINDS = {dict: "object", list: "array", str: "string", int: "integer", bool: "boolean"}


def values_schema_text() -> str:
    """Return the schema as JSON."""
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    properties: dict[str, Any] = {name: {"type": _KINDS[type(value)]} for name, value in given.items()}
    properties["config"] = {name: value for name, value in schema().items() if not name.startswith("$")}
    properties["config"]["type"] = "object"
    made = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties | {"global": {"type": "object"}},
        "additionalProperties": False,
    }
    return json.dumps(made, indent=2) + "\n"
