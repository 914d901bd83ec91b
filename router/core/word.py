"""What an engine says of the load on one of its ranks, our own requests and those of others alike."""

from __future__ import annotations

import msgspec


class EngineLoad(msgspec.Struct, frozen=True, gc=False):
    """`running` and `waiting` requests; `waiting_tokens`, uncached ones of those that wait.

    `waiting_tokens` and `usage`, the share of the KV cache in use from 0 to 1, are 0 where the engine does
    not say; so is `capacity_tokens`, what the KV cache takes.
    """

    running: int
    waiting: int
    waiting_tokens: int = 0
    usage: float = 0.0
    capacity_tokens: int = 0


class Word(msgspec.Struct, frozen=True, gc=False):
    """An engine's word, `at` monotonic seconds, `by` its load socket or the answer to a question."""

    load: EngineLoad
    at: float
    by: str
