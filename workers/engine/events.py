"""KV events: what happened to blocks, in the order it happened, waiting to be published.

Nothing here knows a wire format (see `wire.py`). A queue may join an event to its tail, as SGLang does;
it never reorders.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from workers.engine.namespace import PLAIN, Namespace

GPU = "GPU"
HOST = "CPU_PINNED"  # SGLang's host tier
OFFLOADED = "CPU"  # vLLM's offload connectors


@dataclass(slots=True)
class Stored:
    """Blocks that a tier now holds: n hashes, n * block_size token ids (pairs for bigram models)."""

    hashes: list[int | bytes]
    parent: int | bytes | None
    token_ids: list[Any]
    block_size: int
    medium: str = GPU
    namespace: Namespace = PLAIN
    session_id: str | None = None  # of the request, as its client names it

    def joins(self, tail: Event) -> bool:
        """Return whether this continues `tail`: same tier and namespace, parent the last hash of the run."""
        return (
            isinstance(tail, Stored)
            and tail.hashes[-1] == self.parent
            and (tail.block_size, tail.medium, tail.namespace)
            == (self.block_size, self.medium, self.namespace)
        )


@dataclass(slots=True)
class Removed:
    """Blocks that one tier has dropped; they may live on in another."""

    hashes: list[int | bytes]
    medium: str = GPU

    def joins(self, tail: Event) -> bool:
        """Return whether `tail` is a removal from the same tier."""
        return isinstance(tail, Removed) and tail.medium == self.medium


@dataclass(slots=True)
class Cleared:
    """Every tier of the rank is empty."""


Event: TypeAlias = Stored | Removed | Cleared


@dataclass(slots=True)
class Batch:
    """What one message carries; `ts` in seconds of the engine's clock."""

    ts: float
    events: list[Event]


@dataclass(slots=True)
class EventQueue:
    """Events not yet published. `coalesces`: join an event to the tail when they are compatible."""

    coalesces: bool = True
    pending: list[Event] = field(default_factory=list)

    def append(self, event: Event) -> None:
        """Add one event at the end, or into the last one."""
        tail = self.pending[-1] if self.pending and self.coalesces else None
        match event, tail:
            case Stored(), Stored() if event.joins(tail):
                tail.hashes += event.hashes
                tail.token_ids += event.token_ids
            case Removed(), Removed() if event.joins(tail):
                tail.hashes += event.hashes
            case _:
                self.pending.append(event)

    def take(self) -> list[Event]:
        """Return all pending events and forget them."""
        taken, self.pending = self.pending, []
        return taken
