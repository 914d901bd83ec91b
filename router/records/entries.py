"""What a record is made of: one small array per thing that happened, in the order it happened on the loop.

Times are in seconds: `now` on the loop's monotonic clock, as the router used it; `Session` says what that was
in seconds since the epoch. `rank` is a number that a rank has within its session, `request` likewise. Codes
are u64 LE, eight bytes each (`codes`), four for blocks of one token. A field is only ever added at the end;
anything else is another version of the format.
"""

from __future__ import annotations

from typing import TypeAlias

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


class Store(msgspec.Struct, array_like=True, tag=1, gc=False):
    """BlockStored. `hashes` and `blocks` are codes; without `blocks`, the event had no tokens.

    `aligned`: there is a code for each block; if not, tokens and blocks of the event did not agree.
    """

    hashes: bytes
    parent: int | None
    blocks: bytes
    aligned: bool
    block_size: int
    tier: str
    lora: str | None
    salt: str | None
    group: int
    kind: str | None


class Removal(msgspec.Struct, array_like=True, tag=2, gc=False):
    """BlockRemoved."""

    hashes: bytes
    tier: str
    group: int


class Clear(msgspec.Struct, array_like=True, tag=3, gc=False):
    """AllBlocksCleared."""


class Sealed(msgspec.Struct, array_like=True, gc=False):
    """A batch of events without a token in it."""

    ts: float
    events: list[Store | Removal | Clear]
    undecodable: int


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


class Ranks(msgspec.Struct, array_like=True, tag=20):
    """A set of candidates, in their order, which choices refer to by its number."""

    number: int
    ranks: list[int]


class Blocks(msgspec.Struct, array_like=True, gc=False):
    """A prompt's blocks under one block size, as codes."""

    block_size: int
    bigram: bool
    codes: bytes


class Prompt(msgspec.Struct, array_like=True, tag=21, gc=False):
    """A request has been read. `text`: it is compared as text; `tokens` is the prompt's length.

    `reusable` tokens can come from a cache, none if not `reads_cache`. Without `blocks` only load counted.
    `session` is the code of what the client calls its conversation.
    """

    now: float
    request: int
    id: str
    path: str
    model: str
    lora: str | None
    salt: str | None
    text: bool
    tokens: int
    exact: bool
    reusable: int
    reads_cache: bool
    blocks: list[Blocks]
    session: str | None = None


class Chosen(msgspec.Struct, array_like=True, tag=22, gc=False):
    """A choice among the ranks of a set; `draws` are the random ones, as places in what was drawn from."""

    now: float
    request: int
    policy: str
    among: int
    rank: int
    cached_tokens: int
    predicted_tokens: int
    uncached_tokens: int
    draws: list[float]


class Sent(msgspec.Struct, array_like=True, tag=23, gc=False):
    """The request was entered for the rank(s) chosen last; `decode` is -1 without a pair.

    `keeps`: the decode rank is expected to hold the prompt, too.
    """

    now: float
    request: int
    rank: int
    decode: int
    keeps: bool


class Computed(msgspec.Struct, array_like=True, tag=24, gc=False):
    """The prompt is no longer in flight."""

    now: float
    request: int


class Started(msgspec.Struct, array_like=True, tag=25, gc=False):
    """The client has a first byte."""

    now: float
    request: int


class Reported(msgspec.Struct, array_like=True, tag=26, gc=False):
    """The engine has told its own counts of the prompt's tokens."""

    now: float
    request: int
    prompt_tokens: int | None
    cached_tokens: int | None


class Contradicted(msgspec.Struct, array_like=True, tag=27, gc=False):
    """Of what the view claimed of the prompt, all but the first `held` blocks were taken out."""

    request: int
    held: int


class Over(msgspec.Struct, array_like=True, tag=28, gc=False):
    """The try has left the ledger."""

    now: float
    request: int
    answered: bool


class Ended(msgspec.Struct, array_like=True, tag=29, gc=False):
    """The request is over; `error` is the code of the router's error, or ""."""

    now: float
    request: int
    status: int
    error: str


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


class PeersSaid(msgspec.Struct, array_like=True, tag=35, gc=False):
    """What other processes and routers have on a rank, all together."""

    rank: int
    tokens: int
    requests: int


class Trusted(msgspec.Struct, array_like=True, tag=36, gc=False):
    """Of what was predicted for the request's rank this share has come true."""

    request: int
    share: float


Entry: TypeAlias = (
    Session
    | Weighed
    | EngineSaid
    | EngineForgotten
    | EngineAsked
    | PeersSaid
    | Trusted
    | Ranked
    | Gone
    | Opened
    | Live
    | Replayed
    | ReplayEnded
    | Connected
    | Linked
    | Unlinked
    | Applied
    | Reset
    | Forgot
    | Completed
    | Healed
    | Distrusted
    | Damaged
    | Ticked
    | Expired
    | Swept
    | Ranks
    | Prompt
    | Chosen
    | Sent
    | Computed
    | Started
    | Reported
    | Contradicted
    | Over
    | Ended
    | Views
)
