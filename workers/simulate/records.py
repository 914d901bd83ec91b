"""What is written down of each request and now and then of each worker, in virtual time or live."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct):
    """One request; times in seconds from its arrival `at`, None if that never came.

    `prompt` and `output` tokens; `cached`: those of the prompt that the engine had when it took it up.
    """

    at: float
    prompt: int
    output: int
    worker: int = -1
    cached: int = 0
    ttft: float | None = None
    seconds: float | None = None


class Sample(msgspec.Struct):
    """All workers at one moment: requests that each has not ended, and the share of its KV that they hold."""

    at: float
    requests: list[int]
    occupied: list[float]
