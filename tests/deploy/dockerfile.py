"""A Dockerfile's instructions, by stage."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

Stage = list[tuple[str, str]]


def stages(path: Path) -> list[Stage]:
    """Return the instructions of each stage, FROM included, as they are written but for line breaks."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: list[Stage] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest))
    return found


def only(stage: Stage, name: str) -> str:
    """Return what an instruction says that stands once in a stage."""
    (rest,) = (rest for instruction, rest in stage if instruction == name)
    return rest


def words(text: str) -> list[str]:
    """Return the words of an instruction in exec form."""
    found: list[str] = json.loads(text)
    return found
