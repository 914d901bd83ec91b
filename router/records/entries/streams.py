"""What happened to ranks, to the streams of their events, and to their views."""

from __future__ import annotations

import msgspec

from router.records.entries.batches import Sealed


class Ranked(msgspec.Struct, array_like=True, tag=2):
    """A rank has a view, from now on; as `router.core.view.View` is made."""

    rank: int
    worker: str
    number: int
    model: str
    block_size: int | None
    bigram: bool
    counts_copies: bool
    predicted_ttl: float
    predicted_bound: int


class Gone(msgspec.Struct, array_like=True, tag=3):
    """The rank is no more."""

    rank: int


class Opened(msgspec.Struct, array_like=True, tag=4):
    """The rank's view has a stream, from its beginning."""

    rank: int
    can_replay: bool


class Live(msgspec.Struct, array_like=True, tag=5, gc=False):
    """A batch came over the subscription, `size` bytes; `at_once`: it was applied before anything else."""

    now: float
    rank: int
    seq: int
    size: int
    at_once: bool
    batch: Sealed


class Replayed(msgspec.Struct, array_like=True, tag=6, gc=False):
    """A batch came in answer to a replay."""

    now: float
    rank: int
    seq: int
    batch: Sealed


class ReplayEnded(msgspec.Struct, array_like=True, tag=7):
    """A replay is over; `failure` is "" when it is complete."""

    now: float
    rank: int
    failure: str


class Connected(msgspec.Struct, array_like=True, tag=8):
    """The subscription stands."""

    now: float
    rank: int


class Linked(msgspec.Struct, array_like=True, tag=9):
    """There is a connection; `again`: there was one before."""

    now: float
    rank: int
    again: bool


class Unlinked(msgspec.Struct, array_like=True, tag=10):
    """There is none, for the reason given."""

    now: float
    rank: int
    why: str


class Applied(msgspec.Struct, array_like=True, tag=11, gc=False):
    """The batch of this time, which had waited, was applied."""

    rank: int
    ts: float


class Reset(msgspec.Struct, array_like=True, tag=12):
    """The view was emptied, by its stream or from outside."""

    now: float
    rank: int
    cause: str


class Forgot(msgspec.Struct, array_like=True, tag=13):
    """The stream drops what was published before now (`Cursor.forget`)."""

    now: float
    rank: int
    until_clear: bool
    until_word: bool


class Completed(msgspec.Struct, array_like=True, tag=14, gc=False):
    """A request that makes the rank store blocks is complete."""

    now: float
    rank: int


class Healed(msgspec.Struct, array_like=True, tag=15):
    """The stream was asked to make a degraded view whole."""

    now: float
    rank: int


class Distrusted(msgspec.Struct, array_like=True, tag=16):
    """The engine's answers contradict the view again and again."""

    now: float
    rank: int


class Damaged(msgspec.Struct, array_like=True, tag=17):
    """A batch could not be applied."""

    now: float
    rank: int
    why: str


class Ticked(msgspec.Struct, array_like=True, tag=18):
    """Doubts were forgiven."""

    now: float


class Expired(msgspec.Struct, array_like=True, tag=40):
    """A portion of a rank's predictions was past its time, and dropped."""

    now: float
    rank: int


class Swept(msgspec.Struct, array_like=True, tag=19):
    """The index did so many portions of the work left for later."""

    portions: int
