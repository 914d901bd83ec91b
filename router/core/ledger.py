"""The load in flight on every rank, in tokens and requests: what this process sent, and what others say.

Written at dispatch; given back by the ticket, whatever ends the request: first token, end, error, timeout
or a client that went away. A ticket gives back each thing once, however often it is told.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Load:
    """One rank's load.

    `inflight_tokens`: uncached prompt tokens dispatched and not yet answered with a first token.
    `active_requests`: requests dispatched and not yet ended. `last_dispatch`: the ledger's count when
    this rank was last chosen, 0 for never. Both loads are sums: of them `peer_tokens` and `peer_requests`
    are what other routers and processes have said of themselves (`core.peers`).
    """

    inflight_tokens: int = 0
    active_requests: int = 0
    last_dispatch: int = 0
    peer_tokens: int = 0
    peer_requests: int = 0

    @property
    def own_tokens(self) -> int:
        """Of the tokens in flight, those that this process sent."""
        return self.inflight_tokens - self.peer_tokens

    @property
    def own_requests(self) -> int:
        """Of the active requests, those that this process sent."""
        return self.active_requests - self.peer_requests

    def hear(self, tokens: int, requests: int) -> None:
        """Take what all others together have there now, instead of what was last heard."""
        self.inflight_tokens += tokens - self.peer_tokens
        self.active_requests += requests - self.peer_requests
        self.peer_tokens, self.peer_requests = tokens, requests


class Ticket:
    """One request's entry in the ledger."""

    __slots__ = ("_load", "_open", "_tokens")

    def __init__(self, load: Load, tokens: int) -> None:
        self._load = load
        self._tokens = tokens
        self._open = True

    def first_token(self) -> None:
        """Prefill is over: its tokens are no longer in flight."""
        self._load.inflight_tokens -= self._tokens
        self._tokens = 0

    def close(self) -> None:
        """Give back all that is left."""
        if self._open:
            self._open = False
            self.first_token()
            self._load.active_requests -= 1


class Ledger:
    """Hands out tickets and numbers dispatches."""

    __slots__ = ("dispatches",)

    def __init__(self) -> None:
        self.dispatches = 0

    def open(self, load: Load, uncached_tokens: int) -> Ticket:
        """Enter a request on a rank; the ticket must be closed in a `finally`."""
        self.dispatches += 1
        load.last_dispatch = self.dispatches
        load.inflight_tokens += uncached_tokens
        load.active_requests += 1
        return Ticket(load, uncached_tokens)
