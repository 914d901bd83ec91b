"""What a worker can be told to do wrong, at start (`--fault name=value`) and at run time (`POST /_faults`).

Chances are shares of batches or of requests, from 0 to 1. They are drawn from a seed, per rank and in a
fixed order, so that the same traffic meets the same faults in every run.
"""

from __future__ import annotations

from collections import Counter
from math import isnan
from random import Random
from typing import Annotated, Any, Literal

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=86_400.0)]
Batches = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=16_777_216)]
Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Status = Literal[0] | Annotated[int, msgspec.Meta(ge=400, le=599)]
_MOST_BURST_BYTES = 2**30


class FaultError(ValueError):
    """A fault that there is not."""


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A plan of faults; the default is none. What each of them does: `FAULTS`."""

    seed: Seed = 0
    lose: Share = 0.0
    hole: Share = 0.0
    duplicate: Share = 0.0
    reorder: Share = 0.0
    delay: Share = 0.0
    delay_seconds: Seconds = 0.1
    bad_event: Share = 0.0
    bad_batch: Share = 0.0
    lose_first: Batches = 0
    late: Seconds = 0.0
    silent: bool = False
    dead: bool = False
    burst: Batches = 0
    burst_bytes: Bytes = 1024
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


NONE = Faults()
OF_PUBLISHER = (
    *("lose", "hole", "duplicate", "reorder", "delay", "bad_event", "bad_batch", "lose_first"),
    *("late", "silent", "dead", "burst", "replay"),
)
SHARE, SECONDS, SWITCH = "0..1", "SECONDS", "true|false"
FAULTS: dict[str, tuple[str, str]] = {  # by name: what its value is, and what it does
    "seed": ("NUMBER", "of all chances; the same traffic then meets the same faults"),
    "lose": (SHARE, "share of batches that do not come; a replay has them"),
    "hole": (SHARE, "share of batches whose number is used up and that no replay has"),
    "duplicate": (SHARE, "share of batches that come twice"),
    "reorder": (SHARE, "share of batches that come after the next one"),
    "delay": (SHARE, "share of batches that come delay_seconds later"),
    "delay_seconds": (SECONDS, "how late a delayed batch comes"),
    "bad_event": (SHARE, "share of batches with events among the good ones that cannot be decoded"),
    "bad_batch": (SHARE, "share of batches that cannot be decoded; a replay has the good ones"),
    "lose_first": ("BATCHES", "so many after a start do not come; a replay has them"),
    "late": (SECONDS, "until the publisher opens its socket"),
    "silent": (SWITCH, "no batch leaves, the publisher's socket stays open"),
    "dead": (SWITCH, "the publisher's socket is closed"),
    "burst": ("BATCHES", "so many batches without events at once"),
    "burst_bytes": ("BYTES", "size of each batch of a burst"),
    "replay": ("whole|short|hangs|no_end|legacy", "how a replay is answered; short: the last batch only"),
    "all_routes": (SWITCH, "the faults of requests below hit every route, not only those that generate"),
    "status": ("400..599", "requests are refused with this status; 0: none is"),
    "refuse_share": (SHARE, "share of requests that status refuses"),
    "slow": (SECONDS, "until the first byte of an answer"),
    "reset": (SHARE, "share of answers whose connection is cut after the first piece"),
    "hang": (SHARE, "share of answers of which nothing comes after the first piece"),
    "endless": (SHARE, "share of answers that never end"),
    "hold_pause": (SECONDS, "that a pause outlasts the call that ends it"),
    "restart": (SWITCH, "be a new process on the same ports: no cache, no requests, batches from 0"),
    "refuse": (SECONDS, "in which no connection is taken"),
    "half_open": (SECONDS, "in which connections are taken and never read"),
}


def explained() -> list[str]:
    """Return one line per fault: its name, what its value is, what it does, and its default."""
    defaults = msgspec.to_builtins(NONE)
    heads = {name: f"{name}={value}" for name, (value, _) in FAULTS.items()}
    width = max(map(len, heads.values()))
    return [
        f"{heads[name]:<{width}}  {does} [{msgspec.json.encode(defaults[name]).decode()}]"
        for name, (_, does) in FAULTS.items()
    ]


def parse_faults(body: bytes | dict[str, Any]) -> Faults:
    """Return the plan of a JSON object, or of texts by name; raises FaultError naming what is wrong."""
    try:
        if isinstance(body, bytes):
            plan = msgspec.json.decode(body, type=Faults)
        else:
            plan = msgspec.convert(body, Faults, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FaultError(f"fault: {error}") from error
    return _sound(plan)


def _sound(plan: Faults) -> Faults:
    for name in plan.__struct_fields__:
        value = getattr(plan, name)
        if isinstance(value, float) and isnan(value):
            raise FaultError(f"fault: {name} must be a number, not nan")
    if plan.burst * plan.burst_bytes > _MOST_BURST_BYTES:
        raise FaultError(f"fault: burst times burst_bytes must be at most {_MOST_BURST_BYTES} bytes")
    return plan


def faults_from(settings: tuple[str, ...]) -> Faults:
    """Return the plan of `name=value` settings; raises FaultError, also for a name that comes twice."""
    named: dict[str, str] = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator:
            raise FaultError(f"fault: expected NAME=VALUE, not {setting!r}")
        if name in named:
            raise FaultError(f"fault: {name} is given twice")
        named[name] = value
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
