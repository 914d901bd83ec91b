"""Cells in columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.commands.ink import cut, width
from router.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.commands.ink import Ink

_GAP = "  "


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and its colour; a number stands at the right."""

    text: str
    kind: str = ""
    right: bool = False


def lines(
    heads: Sequence[str], rows: Sequence[Sequence[Cell]], ink: Ink, columns: int | None = None
) -> list[str]:
    """Return a table's lines, no wider than `columns`; the last column takes what is left, or is cut."""
    rows = [[Cell(printable(cell.text), cell.kind, cell.right) for cell in row] for row in rows]
    sizes = [
        max(width(head), *(width(row[at].text) for row in rows), 0) if rows else width(head)
        for at, head in enumerate(heads)
    ]
    right = [bool(rows) and rows[0][at].right for at in range(len(heads))]
    head = [Cell(text, "quiet", right=right[at]) for at, text in enumerate(heads)]
    return [_line(row, sizes, ink, columns) for row in (head, *rows)]


def _line(row: Sequence[Cell], sizes: Sequence[int], ink: Ink, columns: int | None) -> str:
    done, used = [], 0
    for at, (cell, size) in enumerate(zip(row, sizes, strict=True)):
        room = size if columns is None else min(size, max(0, columns - used))
        text = cut(cell.text, room)
        space = " " * (room - width(text))
        last = at == len(row) - 1
        done.append(space + ink(cell.kind, text) if cell.right else ink(cell.kind, text) + space * (not last))
        used += size + len(_GAP)
        if columns is not None and used >= columns:
            break
    return _GAP.join(done).rstrip()
