"""Which settings a running router takes up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from router.config import OPTIONS, Config
from router.derived import breaker_rules_of, capacity_of, limits_of, weights_of
from router.live import LIVE
from router.proxy.route_limits import parse_route_limits

CONFIG = Config(workers=())
OTHERS: dict[str, object] = {"route_limits": (parse_route_limits("/v1/x,total=1"),), "breaker_codes": (599,)}


def other(name: str) -> Any:
    value = getattr(CONFIG, name)
    return OTHERS.get(name, value + 1 if isinstance(value, int | float) else value)


def test_every_name_is_that_of_a_setting() -> None:
    assert set(OPTIONS) >= LIVE


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_changed_in_place_is_said_to_be(name: str) -> None:
    changed = replace(CONFIG, **{name: other(name)})
    parts = (limits_of, weights_of, breaker_rules_of, capacity_of)
    if any(part(changed) != part(CONFIG) for part in parts):
        assert name in LIVE or name == "processes"  # how many share a limit is settled at the start
