"""The schema of the configuration file is that of the table, and is checked in as it is."""

from __future__ import annotations

import jsonschema_rs
import pytest
import yaml

from router.config import OPTIONS
from router.schema import schema, schema_text
from tests.reference import SCHEMA

VALID = [
    "",
    "port: 8000",
    "version: 1\nport: 0\npolicy: random\nretry_share: 0.5\nretries: 2\nprotect_metrics: 'on'",
    "workers: [http://a:1, {url: 'http://b:1', block-size: 16}]\nbreaker_codes: [500, 503]",
    "route_limits: [{path: /v1/embeddings, total: 1}]\nlog_level: debug",
]


def test_the_file_in_docs_is_what_the_command_prints() -> None:
    assert SCHEMA.read_text() == schema_text(), "run python -m tests.reference"


def test_it_is_a_schema_with_every_setting_and_its_default() -> None:
    made = schema()
    assert jsonschema_rs.meta.is_valid(made)
    assert set(made["properties"]) == {"version", *OPTIONS}
    for name, shown in made["properties"].items():
        if "default" in shown:
            jsonschema_rs.validate(made, {name: shown["default"]})


@pytest.mark.parametrize("text", VALID)
def test_what_the_router_takes_is_valid(text: str) -> None:
    assert jsonschema_rs.is_valid(schema(), yaml.safe_load(text))


@pytest.mark.parametrize(
    "text", ["prot: 1", "port: 70000", "port: high", "policy: best", "workers: http://a:1", "version: 2"]
)
def test_what_the_router_refuses_is_not(text: str) -> None:
    assert not jsonschema_rs.is_valid(schema(), yaml.safe_load(text))
