"""What a worker can be told to do wrong, at start (`--fault name=value`) and at run time (`POST /_faults`).

Chances are shares of batches or of requests, from 0 to 1. They are drawn from a seed, per rank and in a
fixed order, so that the same traffic meets the same faults in every run.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Annotated, Any, Literal

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)]
Count = Annotated[int, msgspec.Meta(ge=0, le=100_000_000)]
Status = Literal[0] | Annotated[int, msgspec.Meta(ge=200, le=599)]


class FaultError(ValueError):
    """A fault that there is not."""


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A plan of faults; the default is none.

    Batches: `lose` (a replay still has it), `hole` (its number is used up, no replay has it), `duplicate`,
    `reorder` (it comes after the next one), `delay` (by `delay_seconds`), `bad_event` (events that cannot be
    decoded among good ones), `bad_batch` (a payload that cannot be decoded; a replay has the good one),
    `lose_first` (so many after a start). Publisher: `late` (seconds until it opens), `silent` (nothing
    leaves, the socket stays), `dead` (the socket is closed), `burst` (so many batches of `burst_bytes` at
    once, without events). `replay`: how it answers.

    Requests, on routes that generate unless `all_routes`: `status` with chance `refuse_share`, `slow`
    (seconds until the first byte), `reset` (the connection is cut after the first piece), `hang` (nothing
    comes after the first piece), `endless` (the answer never ends). Worker: `hold_pause` (seconds that a
    pause outlasts its end), `restart`, `refuse` and `half_open` (seconds in which it takes no connection, or
    takes it and never reads).
    """

    seed: int = 0
    lose: Share = 0.0
    hole: Share = 0.0
    duplicate: Share = 0.0
    reorder: Share = 0.0
    delay: Share = 0.0
    delay_seconds: Seconds = 0.1
    bad_event: Share = 0.0
    bad_batch: Share = 0.0
    lose_first: Count = 0
    late: Seconds = 0.0
    silent: bool = False
    dead: bool = False
    burst: Count = 0
    burst_bytes: Count = 1024
    replay: Literal["whole", "short", "hangs", "no_end", "legacy"] = "whole"
    all_routes: bool = False
    status: Status = 0
    refuse_share: Share = 1.0
    slow: Seconds = 0.0
    reset: Share = 0.0
    hang: Share = 0.0
    endless: Share = 0.0
    hold_pause: Seconds = 0.0
    restart: bool = False
    refuse: Seconds = 0.0
    half_open: Seconds = 0.0

    def lasting(self) -> Faults:
        """Return the plan without what happens once."""
        return msgspec.structs.replace(self, restart=False, burst=0, refuse=0.0, half_open=0.0, late=0.0)


NONE = Faults()


def parse_faults(body: bytes | dict[str, Any]) -> Faults:
    """Return the plan of a JSON object, or of texts by name; raises FaultError naming what is wrong."""
    try:
        if isinstance(body, bytes):
            return msgspec.json.decode(body, type=Faults)
        return msgspec.convert(body, Faults, strict=False)
    except msgspec.MsgspecError as error:
        raise FaultError(f"fault: {error}") from error


def faults_from(settings: tuple[str, ...]) -> Faults:
    """Return the plan of `name=value` settings."""
    named = dict(setting.partition("=")[::2] for setting in settings)
    return parse_faults(named)


class Dice:
    """The chances of one rank or one HTTP edge, and how often each came up."""

    def __init__(self, faults: Faults, owner: str) -> None:
        self.faults = faults
        self.counts: Counter[str] = Counter()
        self._random = Random(f"{faults.seed} {owner}")

    def roll(self, *names: str) -> set[str]:
        """Return which of the named faults happen now; every name costs one draw, whatever its chance."""
        happening = {name for name in names if self._random.random() < getattr(self.faults, name)}
        self.counts.update(happening)
        return happening
