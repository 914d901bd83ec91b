"""A `kv-workers` command that is told something that cannot be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from workers.cli import main

if TYPE_CHECKING:
    from collections.abc import Sequence


def one_line(
    arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Run it; return the one line that it says before it ends with exit code 2."""
    monkeypatch.setattr(sys, "argv", ["kv-workers", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    return said.err
