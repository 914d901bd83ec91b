"""What happens to a batch between the engine and the wire when the publisher is told to misbehave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from workers.faults import NONE, Dice

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.faults import Faults

_NONSENSE = [{"type": "BlockStored", "block_hashes": "nonsense"}, {"type": "NotYetInvented", "x": 1}, 7]
_GARBAGE = b"\xc1 this is no msgpack"


class Tamper:
    """One rank's batches under a plan; `forward` puts a number and a payload on the wire."""

    def __init__(self, faults: Faults, rank: int, forward: Callable[[bytes, bytes], None]) -> None:
        self.faults = faults
        self.dice = Dice(faults, f"rank {rank}")
        self._forward = forward
        self._sent = 0
        self._held: list[tuple[bytes, bytes]] = []
        self._timers: set[asyncio.TimerHandle] = set()
        self.idle = faults == NONE

    def send(self, number: bytes, payload: bytes) -> bytes | None:
        """Send a batch as the plan has it; return what the history keeps of it, None for a hole."""
        self._sent += 1
        roll = self.dice.roll("hole", "bad_event", "lose", "bad_batch", "duplicate", "delay", "reorder")
        if "hole" in roll:
            return None
        if "bad_event" in roll:
            payload = _with_nonsense(payload)
        if not (self.faults.silent or "lose" in roll or self._sent <= self.faults.lose_first):
            wire = _GARBAGE if "bad_batch" in roll else payload
            self._dispatch(roll, number, wire)
        return payload

    def _dispatch(self, roll: set[str], number: bytes, wire: bytes) -> None:
        if "delay" in roll:
            self._later(number, wire)
        elif "reorder" in roll:
            self._held.append((number, wire))
            return
        else:
            for _ in range(2 if "duplicate" in roll else 1):
                self._forward(number, wire)
        held, self._held = self._held, []
        for message in held:
            self._forward(*message)

    def _later(self, number: bytes, wire: bytes) -> None:
        def fire() -> None:
            self._timers.discard(timer)
            self._forward(number, wire)

        timer = asyncio.get_running_loop().call_later(self.faults.delay_seconds, fire)
        self._timers.add(timer)

    def close(self) -> None:
        """Drop what has been held back."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._held.clear()


def _with_nonsense(payload: bytes) -> bytes:
    """Return the payload with events among its own that no reader can decode."""
    ts, events, *rest = msgspec.msgpack.decode(payload)
    return msgspec.msgpack.encode([ts, [*_NONSENSE[:1], *events, *_NONSENSE[1:]], *rest])


def filler(size: int, rank: int) -> bytes:
    """Return a batch of `size` bytes or a little more that says nothing: its fourth element is padding."""
    return msgspec.msgpack.encode([0.0, [], rank, b"\0" * size])
