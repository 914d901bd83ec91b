"""What is known of a stream, how a batch stands to it, and what its owner is told to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from router.core.events import Batch


class State(StrEnum):
    """What is known of a stream."""

    CONNECTING = "connecting"
    REPLAYING = "replaying"
    LIVE = "live"
    DEGRADED = "degraded"
    SILENT = "silent"


class Standing(StrEnum):
    """How a batch stands to the cursor."""

    FIRST = "first"
    NEXT = "next"
    GAP = "gap"
    DUPLICATE = "duplicate"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply the batch to the view.

    `past`: it is no news, but from before the stream was heard, or told again. It resets nothing now.
    """

    batch: Batch
    past: bool = False


@dataclass(frozen=True, slots=True)
class Reset:
    """Forget the view; `cause` names why."""

    cause: str


@dataclass(frozen=True, slots=True)
class AskReplay:
    """Ask the engine for every batch from `start` on."""

    start: int


Step: TypeAlias = Apply | Reset | AskReplay
