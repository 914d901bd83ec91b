from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector

from router.observe.process import process_values

if TYPE_CHECKING:
    from pathlib import Path


def test_values_are_those_that_prometheus_own_library_finds() -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    found = process_values()
    for family in registry.collect():
        (sample,) = family.samples
        ours = found[family.name.removeprefix("process_")]
        assert abs(ours - sample.value) <= 0.05 * sample.value + 1


def test_an_open_file_and_used_time_count(tmp_path: Path) -> None:
    before = process_values()
    with (tmp_path / "file").open("w"):
        while sum(os.times()[:2]) < before["cpu_seconds"] + 0.05:
            pass
        after = process_values()
    assert after["open_fds"] == before["open_fds"] + 1
    assert after["cpu_seconds"] > before["cpu_seconds"]
    assert before["start_time_seconds"] == after["start_time_seconds"] <= time.time() + 1
