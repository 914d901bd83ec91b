"""The one form that every trace and generator yields: requests with their times, lengths and shared parts.

A prompt is a row of segments, each a name (a number) and a length in tokens. Prompts share a prefix as far as
their segments are the same, and, where two segments of one name have different lengths, as far as the shorter
one goes. What the tokens are is decided last (`tokens_of`), by the size of the vocabulary.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from random import Random

Segment: TypeAlias = tuple[int, int]

PATTERN = 4


class WorkloadError(ValueError):
    """A trace that cannot be read, or a workload that cannot be made; the message is one line."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: `at` in seconds from the start, the prompt's segments, `output` tokens to answer with.

    `session`: which conversation it belongs to, None where there is none.
    """

    at: float
    segments: tuple[Segment, ...]
    output: int
    session: int | None = None

    @property
    def tokens(self) -> int:
        """Length of the prompt."""
        return sum(length for _, length in self.segments)


@dataclass(frozen=True, slots=True)
class Sync:
    """A weight sync: at `at` all workers are paused (retract) and flushed, and go on `seconds` later."""

    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in the order of their times. `page_size`: tokens of a block that suits its segments."""

    name: str
    asks: tuple[Ask, ...]
    syncs: tuple[Sync, ...] = ()
    page_size: int = 16

    @property
    def seconds(self) -> float:
        """Time of the last request."""
        return self.asks[-1].at if self.asks else 0.0

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of all requests."""
        return sum(ask.tokens for ask in self.asks)

    @property
    def longest(self) -> int:
        """Most tokens, prompt and answer, of a request."""
        return max((ask.tokens + ask.output for ask in self.asks), default=0)

    def faster(self, speed: float) -> Workload:
        """Return the same at a multiple of its speed."""
        if speed == 1:
            return self
        asks = tuple(replace(ask, at=ask.at / speed) for ask in self.asks)
        return replace(self, asks=asks, syncs=tuple(replace(sync, at=sync.at / speed) for sync in self.syncs))

    def first(self, count: int) -> Workload:
        """Return the first `count` requests of it, and the syncs up to the last of them; 0 is all."""
        if not 0 < count < len(self.asks):
            return self
        asks = self.asks[:count]
        return replace(self, asks=asks, syncs=tuple(sync for sync in self.syncs if sync.at <= asks[-1].at))


def in_order(asks: list[Ask]) -> tuple[Ask, ...]:
    """Return requests by their times; those of one time stay as they are."""
    return tuple(sorted(asks, key=lambda ask: ask.at))


def poisson(rng: Random, rate: float, seconds: float) -> list[float]:
    """Return the times of a Poisson process of so many a second, from 0 on, before `seconds`; none at 0."""
    times, now = [], rng.expovariate(rate) if rate else seconds
    while now < seconds:
        times.append(now)
        now += rng.expovariate(rate)
    return times


def tokens_of(segments: tuple[Segment, ...], vocabulary: int) -> bytes:
    """Return a prompt's token ids, u32 in the machine's order, all below `vocabulary`.

    A segment's tokens spell its name over and over, so equal names are equal tokens and others are not.
    About 1 us a segment and 1 ns a token.
    """
    return b"".join(_spelt(name, vocabulary, length) for name, length in segments)


def _spelt(name: int, vocabulary: int, length: int) -> bytes:
    digits = array("I")
    for _ in range(PATTERN):
        name, digit = divmod(name, vocabulary)
        digits.append(digit)
    return (digits.tobytes() * -(-length // PATTERN))[: length * digits.itemsize]
