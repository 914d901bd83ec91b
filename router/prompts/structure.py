"""How much there is in a large body, counted before it is decoded.

Decoding costs by the value, not by the byte: 8 MB of text take 2 to 7 ms, 8 MB of empty lists half a second,
and the interpreter does nothing else meanwhile. The count takes 1 ms per megabyte of text, in steps.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

STEP_BYTES = 131_072
"""How much is counted at once: 0.1 ms of text, 2 ms of nothing but quotes."""

MAX_HOLDERS = 16_384
"""The most lists and objects that are decoded at once, at 0.25 us each."""

MAX_COMMAS = 131_072
"""The most commas, and so about the most values, that are decoded at once, at 30 ns each."""

MODEST_COMMAS = 32_768
"""As many token ids take 2 ms."""

_ESCAPED = (b"\\\\", b'\\"')


class Structure(NamedTuple):
    """What JSON has outside of its strings: `holders` are lists and objects, `commas` are in them."""

    holders: int
    commas: int

    @property
    def is_much(self) -> bool:
        """Whether decoding it would take more than a few milliseconds."""
        return self.holders > MAX_HOLDERS or self.commas > MAX_COMMAS

    def without(self, part: Structure) -> Structure:
        """Return what is left beside a part of it."""
        return Structure(self.holders - part.holders, self.commas - part.commas)


def is_modest(raw: bytes) -> bool:
    """Whether `raw` surely holds so little that decoding it takes 5 ms, beside its text.

    0.1 ms per megabyte of text; brackets and commas in it count too.
    """
    return raw.count(b"[") + raw.count(b"{") <= MAX_HOLDERS and raw.count(b",") <= MODEST_COMMAS


async def structure_of(raw: bytes) -> Structure:
    """Count what `raw` holds, with pauses for others. Whether it is JSON is not looked at."""
    holders = commas = 0
    inside = escaped = False
    for start in range(0, len(raw), STEP_BYTES):
        step = raw[start + escaped : start + STEP_BYTES]
        escaped = (len(step) - len(step.rstrip(b"\\"))) % 2 == 1
        outside, inside = _outside(step, inside=inside)
        holders += outside.count(b"[") + outside.count(b"{")
        commas += outside.count(b",")
        await asyncio.sleep(0)
    return Structure(holders, commas)


def _outside(step: bytes, *, inside: bool) -> tuple[bytes, bool]:
    """Return what is outside of strings, and whether the step ends within one; it may begin `inside` one."""
    for escape in _ESCAPED:
        step = step.replace(escape, b"")
    pieces = step.split(b'"')
    return b" ".join(pieces[inside::2]), inside ^ (len(pieces) % 2 == 0)
