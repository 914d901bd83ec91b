"""What a protocol of this room needs to know of a request, and whom it tells what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from router.proxy.relay import Relayed
    from router.proxy.response import Response


class Job(Protocol):
    """One request on its way through one pair.

    `body` is what a worker that does all of it would get; `prompts` how many it holds, `copies` how many
    answers to each are asked for.
    """

    body: bytes
    prompts: int
    copies: int

    @property
    def answered(self) -> bool:
        """Whether the client has a first byte."""

    def prefilled(self, usage: bytes | None = None) -> None:
        """Take note that the prefill half is over; `usage` is its own count of tokens in JSON, if it told."""

    async def pass_on(self, response: Response) -> Relayed:
        """Pass the decode worker's answer on; raises UpstreamFailed only while nothing has been sent."""
