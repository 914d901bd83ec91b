"""What happened to requests: how they were read, chosen for, sent, answered."""

from __future__ import annotations

import msgspec


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


class Trusted(msgspec.Struct, array_like=True, tag=36, gc=False):
    """Of what was predicted for the request's rank this share has come true."""

    request: int
    share: float


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
