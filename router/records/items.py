"""What the event loop hands over to the scribe: entries, and references to what becomes one there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from router.records.entries import Entry

if TYPE_CHECKING:
    from router.api.planner import Plan
    from router.core.events import Batch
    from router.core.facts import Candidate, Facts


class RawLive(NamedTuple):
    """Becomes `Live`; `held` is what it keeps in memory, in bytes, as everywhere here."""

    now: float
    rank: int
    seq: int
    size: int
    at_once: bool
    batch: Batch
    held: int


class RawReplayed(NamedTuple):
    """Becomes `Replayed`."""

    now: float
    rank: int
    seq: int
    batch: Batch
    held: int


class RawChosen(NamedTuple):
    """Becomes `Chosen`, after `Ranks` for candidates and `Prompt` for a request not seen before."""

    now: float
    request: int
    id: bytes
    path: str
    plan: Plan
    policy: str
    facts: Facts
    chosen: Candidate
    draws: list[float]
    held: int


Raw: TypeAlias = RawLive | RawReplayed | RawChosen
Item: TypeAlias = Entry | Raw
