"""The load on every rank, in tokens and requests: what this process has sent there, and what others have.

Our own share is written at dispatch and given back by the ticket, whatever ends the request: first token,
end, error, timeout or a client that went away. A ticket gives back each thing once, however often it is told.

What others have there is known from two sides. Peers tell what they have sent, some milliseconds late
(`core.peers`). The engine tells what it has from anybody, us and our peers included, up to a second late
(`fleet.loads`): of that, only what is more than all of us may have had there since its last word is load of
strangers, and is added. So what is known of us and of peers is never older than it need be, and nothing is
counted twice; a peer that is not heard is a stranger, who counts by the engine's word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from array import array

    import numpy as np
    from numpy.typing import NDArray


class Shown(NamedTuple):
    """What loads show, each in a row in this order, as columns: what they are called there, too (`Load`)."""

    inflight_tokens: NDArray[np.float64]
    active_requests: NDArray[np.float64]
    last_dispatch: NDArray[np.float64]
    context_tokens: NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Load:
    """One rank's load.

    `inflight_tokens`: uncached prompt tokens dispatched and not yet answered with a first token.
    `active_requests`: requests dispatched and not yet ended; `waiting_requests`: our own of them that have no
    first token yet. `last_dispatch`: the ledger's count when
    this rank was last chosen, 0 for never. Both loads are sums: of them `peer_tokens` and `peer_requests` are
    what other routers and processes say of themselves, `stranger_tokens` and `stranger_requests` what the
    engine says beyond that and our own. `peak_tokens`, `peak_requests`: the most that the sums have been
    since the engine was last listened to.

    `context_tokens`: tokens of whole prompts, cached ones too, of our own requests: what of the KV cache they
    hold at least, of `capacity_tokens` (0: not known). `usage`: the share of the KV cache in use as the
    engine says, 0 to 1. `cells`: where it is shown, in a row that begins `at` (`core.board`); None: nowhere.
    """

    inflight_tokens: int = 0
    active_requests: int = 0
    waiting_requests: int = 0
    last_dispatch: int = 0
    peer_tokens: int = 0
    peer_requests: int = 0
    stranger_tokens: int = 0
    stranger_requests: int = 0
    peak_tokens: int = 0
    peak_requests: int = 0
    context_tokens: int = 0
    capacity_tokens: int = 0
    usage: float = 0.0
    cells: array[float] | None = None
    at: int = 0

    @property
    def others_tokens(self) -> int:
        """Of the tokens in flight, those that others have sent."""
        return self.peer_tokens + self.stranger_tokens

    @property
    def others_requests(self) -> int:
        """Of the active requests, those that others have sent."""
        return self.peer_requests + self.stranger_requests

    @property
    def own_tokens(self) -> int:
        """Of the tokens in flight, those that this process sent."""
        return self.inflight_tokens - self.others_tokens

    @property
    def own_requests(self) -> int:
        """Of the active requests, those that this process sent."""
        return self.active_requests - self.others_requests

    @property
    def occupancy(self) -> float:
        """The share of the KV cache in use, 0 to 1: the engine's word, or at least what our prompts take."""
        own = self.context_tokens / self.capacity_tokens if self.capacity_tokens else 0.0
        return max(self.usage, min(own, 1.0))

    def sit(self, cells: array[float], at: int) -> None:
        """Be shown there from now on."""
        self.cells, self.at = cells, at
        self.show()

    def show(self) -> None:
        """Write down what has changed; whoever changes the numbers has to. About 0.1 us."""
        cells = self.cells
        if cells is not None:
            at = self.at
            cells[at] = self.inflight_tokens
            cells[at + 1] = self.active_requests
            cells[at + 2] = self.last_dispatch
            cells[at + 3] = self.context_tokens

    def hear(self, tokens: int, requests: int) -> None:
        """Take what all peers together have there now, instead of what was last heard."""
        self.inflight_tokens += tokens - self.peer_tokens
        self.active_requests += requests - self.peer_requests
        self.peer_tokens, self.peer_requests = tokens, requests
        self.peak_tokens = max(self.peak_tokens, self.inflight_tokens)
        self.peak_requests = max(self.peak_requests, self.active_requests)
        self.show()

    def hear_engine(self, tokens: int, requests: int) -> None:
        """Take what the engine has in all, from anybody, since `listen` or the last word of it.

        What we and our peers had at most in that time may be in it: the end of a request is known there
        before it is known here, and what it says may be that much older. Strangers' share of the tokens
        is no larger than that of the requests: engines count whole prompts that wait, we what is not cached.
        """
        known_tokens = self.peak_tokens - self.stranger_tokens
        known_requests = self.peak_requests - self.stranger_requests
        strangers = max(0, requests - known_requests)
        share = tokens * strangers // requests if strangers else 0
        self._meet(min(share, max(0, tokens - known_tokens)), strangers)
        self.listen()

    def forget_engine(self) -> None:
        """Drop what the engine has said: it is too old."""
        self.usage = 0.0
        self._meet(0, 0)

    def listen(self) -> None:
        """Begin to note the most that there is: the engine is about to say what it has."""
        self.peak_tokens, self.peak_requests = self.inflight_tokens, self.active_requests

    def _meet(self, tokens: int, requests: int) -> None:
        more_tokens, more_requests = tokens - self.stranger_tokens, requests - self.stranger_requests
        self.stranger_tokens, self.stranger_requests = tokens, requests
        self.inflight_tokens += more_tokens
        self.active_requests += more_requests
        self.peak_tokens += more_tokens
        self.peak_requests += more_requests
        self.show()

    def enter(self, dispatch: int, uncached_tokens: int, prompt_tokens: int) -> None:
        """Add a request, the ledger's `dispatch`-th; a ticket takes it out again. About 0.3 us."""
        self.last_dispatch = dispatch
        self.inflight_tokens = tokens = self.inflight_tokens + uncached_tokens
        self.active_requests = requests = self.active_requests + 1
        self.waiting_requests += 1
        self.context_tokens += prompt_tokens
        if tokens > self.peak_tokens:  # noqa: PLR1730 - max() costs three times as much
            self.peak_tokens = tokens
        if requests > self.peak_requests:  # noqa: PLR1730 - as above
            self.peak_requests = requests
        self.show()


class Ticket:
    """One request's entry in the ledger."""

    __slots__ = ("_context", "_load", "_open", "_tokens", "_waits")

    def __init__(self, load: Load, tokens: int, context: int) -> None:
        self._load = load
        self._tokens = tokens
        self._context = context
        self._open = True
        self._waits = 1

    def first_token(self) -> None:
        """Prefill is over: its tokens are no longer in flight."""
        load = self._load
        load.inflight_tokens -= self._tokens
        load.waiting_requests -= self._waits
        self._tokens = self._waits = 0
        load.show()

    def close(self) -> None:
        """Give back all that is left."""
        if self._open:
            self._open = False
            self._load.active_requests -= 1
            self._load.context_tokens -= self._context
            self.first_token()


class Ledger:
    """Hands out tickets and numbers dispatches."""

    __slots__ = ("dispatches",)

    def __init__(self) -> None:
        self.dispatches = 0

    def open(self, load: Load, uncached_tokens: int, prompt_tokens: int = 0) -> Ticket:
        """Enter a request on a rank; the ticket must be closed in a `finally`.

        `prompt_tokens`: what its prompt takes of the KV cache, cached tokens too.
        """
        self.dispatches += 1
        load.enter(self.dispatches, uncached_tokens, prompt_tokens)
        return Ticket(load, uncached_tokens, prompt_tokens)
