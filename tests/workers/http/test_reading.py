"""A control call is read as a whole before any of it takes effect."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.workers.edge import one
from workers.faults import FaultError, Faults, parse_faults


@pytest.mark.parametrize(
    ("field", "value"),
    [("weight_version", 3), ("flush_cache", "false"), ("keep_pause", 1), ("abort_all_requests", "yes")],
)
async def test_a_refused_update_has_changed_nothing(field: str, value: Any) -> None:
    async with one() as edge:
        before = (await edge.get("/model_info")).json()
        answer = await edge.post("/update_weights_from_disk", {"model_path": "/new", field: value})
        assert answer.status_code == 400
        assert field in answer.text
        assert (await edge.get("/model_info")).json() == before


@pytest.mark.parametrize(
    "plan",
    [
        {"lose": 1.5},
        {"lose": -1},
        {"burst": -5},
        {"burst_bytes": -1},
        {"delay_seconds": -1},
        {"slow": -5},
        {"lose_first": -1},
        {"status": 42},
        {"status": 99999},
    ],
    ids=str,
)
def test_a_fault_out_of_range_is_refused_by_name(plan: dict[str, Any]) -> None:
    (name,) = plan
    with pytest.raises(FaultError, match=name):
        parse_faults(msgspec.json.encode(plan))


def test_a_fault_at_its_bounds_is_taken() -> None:
    assert parse_faults({"lose": 1, "status": 599, "burst": 0}) == Faults(lose=1.0, status=599)
