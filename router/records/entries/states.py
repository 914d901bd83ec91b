"""What there was at one moment: the session's settings, the views, what others say of the load."""

from __future__ import annotations

import msgspec


class Session(msgspec.Struct, array_like=True, tag=1):
    """The first entry of each part: `part` counts from 0 within one run of a router, `session`.

    `shared`: what other processes of the router told this one is not in the record.
    """

    session: str
    part: int
    version: str
    began: float
    now: float
    policy: str
    weights: dict[str, int | float]
    index_max_blocks: int
    sweep_portion: int
    shared: bool = False


class Row(msgspec.Struct, array_like=True):
    """What one rank's view and load were."""

    rank: int
    state: str
    last_seq: int | None
    blocks: dict[str, int]
    predicted: int
    orphans: int
    resets: dict[str, int]
    inflight_tokens: int
    active_requests: int


class Views(msgspec.Struct, array_like=True, tag=30):
    """All ranks at one moment; `last`: nothing comes after it, the router has ended in order."""

    now: float
    rows: list[Row]
    last: bool


class Weighed(msgspec.Struct, array_like=True, tag=31):
    """From now on policies weigh so: the settings were read again."""

    now: float
    weights: dict[str, int | float]


class EngineSaid(msgspec.Struct, array_like=True, tag=32, gc=False):
    """What an engine says that a rank has in all; `usage` and `capacity` are of its KV cache (`Load`)."""

    rank: int
    tokens: int
    requests: int
    usage: float
    capacity: int


class EngineForgotten(msgspec.Struct, array_like=True, tag=33, gc=False):
    """What it has said is too old."""

    rank: int


class EngineAsked(msgspec.Struct, array_like=True, tag=34, gc=False):
    """It is about to say what it has."""

    rank: int


class Inherited(msgspec.Struct, array_like=True, tag=37, gc=False):
    """Another rank, `by`, goes on with the load of this one, which it has replaced."""

    rank: int
    by: int


class PeersSaid(msgspec.Struct, array_like=True, tag=35, gc=False):
    """What other processes and routers have on a rank, all together."""

    rank: int
    tokens: int
    requests: int
