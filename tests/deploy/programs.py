"""Programs of the system that tests run."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import which


def program(name: str) -> str:
    """Return the path of a program; daemons live where an ordinary user's PATH may not lead."""
    found = which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")))
    assert found is not None, f"{name} is not installed: run `python -m tests.debian`"
    return found


def beside(name: str) -> str:
    """Return the path of a program that a Python package has brought."""
    found = Path(sys.executable).parent / name
    assert found.exists(), f"{name} is not installed: it comes with the extra `test`"
    return str(found)
