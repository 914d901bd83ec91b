"""Traces in the form published with Mooncake (FAST'25): one JSON object a line.

`timestamp` in ms, `input_length` and `output_length` in tokens, `hash_ids` one per 512 tokens of prompt, each
of which stands for all of the prompt up to there. Times may be rounded (the published ones to 3 s), so that
many requests seem to come at one moment; `spread` lets them come evenly until the next such moment.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from router.named_file import read_named
from workers.traces.workload import Ask, Segment, Workload, WorkloadError, in_order

if TYPE_CHECKING:
    from pathlib import Path

BLOCK_TOKENS = 512
_MOST_BYTES = 2**30
_MOST_IDS = 1 << 40


class _Line(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


_decode = msgspec.json.Decoder(_Line).decode


def read(path: Path, *, spread: bool = True) -> Workload:
    """Return the trace of a file, its first request at 0 s. Raises WorkloadError, which names the line."""
    try:
        lines = read_named(path, _MOST_BYTES).split(b"\n")
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror or error}") from error
    asks = [_ask(line, number, path) for number, line in enumerate(lines, 1) if line.strip()]
    if not asks:
        raise WorkloadError(f"{path}: there is no request in it")
    asks.sort(key=lambda ask: ask.at)
    start = asks[0].at
    asks = [replace(ask, at=ask.at - start) for ask in asks]
    return Workload(path.stem, in_order(spread_out(asks) if spread else asks), page_size=BLOCK_TOKENS)


def _ask(line: bytes, number: int, path: Path) -> Ask:
    try:
        said = _decode(line)
    except msgspec.MsgspecError as error:
        raise WorkloadError(f"{path}, line {number}: {error}") from error
    whole = said.input_length // BLOCK_TOKENS
    if said.input_length < 1 or said.output_length < 0 or not whole <= len(said.hash_ids) <= whole + 1:
        wanted = f"one of hash_ids for every {BLOCK_TOKENS} of input_length, which is at least 1"
        raise WorkloadError(f"{path}, line {number}: expected {wanted}")
    if not all(0 <= name < _MOST_IDS for name in said.hash_ids):
        raise WorkloadError(f"{path}, line {number}: hash_ids are from 0 to {_MOST_IDS - 1}")
    return Ask(said.timestamp / 1000, _segments(said, number), max(1, said.output_length))


def _segments(said: _Line, number: int) -> tuple[Segment, ...]:
    """Return the blocks; a rest that no hash names is nobody else's."""
    rest = said.input_length % BLOCK_TOKENS
    whole: list[Segment] = [
        (name, BLOCK_TOKENS) for name in said.hash_ids[: said.input_length // BLOCK_TOKENS]
    ]
    if rest:
        named = len(said.hash_ids) > len(whole)
        whole.append((said.hash_ids[-1] if named else -number, rest))
    return tuple(whole)


def spread_out(asks: list[Ask]) -> list[Ask]:
    """Let requests of one moment come evenly until the next moment; those of the last one stay."""
    moments = [list(group) for _, group in groupby(asks, key=lambda ask: ask.at)]
    ends = [moment[0].at for moment in moments[1:]] + [moments[-1][0].at]
    return [
        replace(ask, at=ask.at + (end - ask.at) * place / len(moment))
        for moment, end in zip(moments, ends, strict=True)
        for place, ask in enumerate(moment)
    ]
