"""What an admin call does to workers, said so that other processes of the router can do the same.

The engine is called once, by the process that was asked; the others are told that a call begins, because they
note then what their streams have seen, and what came of it.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from router.engines.control import Action
from router.fleet.spec import WorkerSpec


class Begun(msgspec.Struct, frozen=True, tag=True):
    """A control call to a worker begins; `call` is its name."""

    call: str
    url: str
    action: Action


class Ended(msgspec.Struct, frozen=True, tag=True):
    """It is over. `answered`: the worker has said something. `cleared`: its cache is empty now."""

    call: str
    url: str
    action: Action
    answered: bool
    ok: bool
    cleared: bool


class Added(msgspec.Struct, frozen=True, tag=True):
    """A worker is there; `address`: where it is, checked when it was added at run time."""

    spec: WorkerSpec
    address: str | None


class Drained(msgspec.Struct, frozen=True, tag=True):
    """The operator keeps requests away from a worker, or does no more."""

    url: str
    on: bool


class Removed(msgspec.Struct, frozen=True, tag=True):
    """A worker is to go; its requests may take so many seconds."""

    url: str
    seconds: float


Effect: TypeAlias = Begun | Ended | Added | Drained | Removed
EFFECT = msgspec.msgpack.Decoder(Effect)
