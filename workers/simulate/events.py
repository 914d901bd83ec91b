"""The engine's batches as the router would have decoded them, without the bytes between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core import events
from router.core.blocks import pack_tokens
from workers.engine.events import Cleared, Removed, Stored

if TYPE_CHECKING:
    from workers.engine.events import Batch, Event


def heard(batch: Batch) -> events.Batch:
    """Return a batch as a router sees it; about 10 ns a token."""
    return events.Batch(batch.ts, [_event(event) for event in batch.events], None)


def _event(event: Event) -> events.Event:
    match event:
        case Stored():
            tokens = pack_tokens(event.token_ids)
            return events.Stored(
                event.hashes,
                event.parent,
                tokens,
                event.block_size,
                False,
                event.medium,
                None,
                None,
                None,
                0,
                None,
            )
        case Removed():
            return events.Removed(event.hashes, event.medium, 0)
        case Cleared():
            return events.Cleared()
