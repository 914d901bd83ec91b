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
# What the API knows more of than the chart does.
_OPEN = {"resources"}
_LEAST = {"replicas": 0, "minReplicas": 1, "maxReplicas": 1}
_PORTS = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}}


def values_schema_text() -> str:
    """Return the schema as JSON."""
    made = _closed(yaml.safe_load((CHART / "values.yaml").read_text()))
    properties = made["properties"]
    config = {name: value for name, value in schema().items() if not name.startswith("$")}
    port = config["properties"]["port"] | {"minimum": 1}  # a free one would be known to nobody
    config |= {"type": "object", "properties": config["properties"] | {"port": port}}
    properties |= {"config": config, "global": {"type": "object"}}
    properties["networkPolicy"]["properties"]["apiServerPorts"] = _PORTS
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
    return json.dumps(made, indent=2) + "\n"


def _closed(given: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a mapping that has these keys, and no others."""
    properties = {name: _schema_of(name, value) for name, value in given.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _schema_of(name: str, value: Any) -> dict[str, Any]:
    if name == "minAvailable":
        return {"type": ["integer", "string"]}
    if isinstance(value, dict) and value and name not in _OPEN:
        return _closed(value)
    least = {"minimum": _LEAST[name]} if name in _LEAST else {}
    return {"type": _KINDS[type(value)], **least}
