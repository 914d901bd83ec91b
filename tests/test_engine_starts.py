"""The real engines' suite, where an engine does not start: it says why, and costs no test any time again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.engines_real import engine
from tests.engines_real.engine import NotUp, Plan
from tests.engines_real.engines import Engines

if TYPE_CHECKING:
    from pathlib import Path

_PLAN = Plan("broken", 1, 2, None)  # ports that nobody listens at
_PROGRAM = """#!/bin/sh
echo once >> {starts}
echo no such model
exit 1
"""


def test_an_engine_that_has_ended_at_its_start_is_not_started_again_and_its_last_words_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, program = tmp_path / "starts", tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(_PROGRAM.format(starts=starts))
    program.chmod(0o755)
    monkeypatch.setattr(engine, "HOME", tmp_path)
    monkeypatch.setattr(engine, "LOGS", tmp_path)
    engines = Engines()
    for _ in range(2):
        with pytest.raises(NotUp, match="no such model"):
            engines.have(_PLAN)
    assert starts.read_text() == "once\n"
