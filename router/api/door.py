"""Who is let in: the routes that need a client's key, and the check of it before anything else is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.api.knocks import Knocks
from router.api.page import PAGE_PATHS
from router.errors import NotAllowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from router.api.keys import Client, Keyring
    from router.proxy.forwarding import Sender
    from router.proxy.headers import Field

# What carries no prompt and says nothing of the fleet; probes and scrapers have no keys, and the page asks
# for one by itself.
_OPEN = frozenset({"/health", "/ready", "/openapi.json", *PAGE_PATHS})
_METRICS = "/metrics"
# They have a key of their own.
_ADMIN = "/admin/"


class Door:
    """Stands before all routes; there is none where no keys are asked for."""

    __slots__ = ("_clock", "_knocks", "_open", "_ring", "refused")

    def __init__(self, ring: Keyring, clock: Callable[[], float], *, metrics_need_key: bool) -> None:
        self._ring = ring
        self._clock = clock
        self._knocks = Knocks("for want of a valid client's key", clock)
        self._open = _OPEN if metrics_need_key else _OPEN | {_METRICS}
        self.refused = 0

    def close(self) -> None:
        """Tell of those refused last."""
        self._knocks.close()

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the requests so far, by client and outcome."""
        counts = {("", "refused"): self.refused}
        for client in self._ring.clients():
            counts[client.name, "admitted"] = client.admitted
            counts[client.name, "limited"] = client.limited
        return counts

    def is_open(self, path: str) -> bool:
        """Whether a path of the control surface needs no key."""
        return path in self._open or path.startswith(_ADMIN)

    def knows(self, fields: Iterable[Field]) -> bool:
        """Whether a request that was let in still would be; counts nothing."""
        return self._ring.client_of(fields) is not None

    def admit(self, fields: Sequence[Field], sender: Sender, *, counted: bool = True) -> Client:
        """Return whose request it is; raises NotAllowed, and RateLimited when it is `counted`. About 1 us."""
        client = self._ring.client_of(fields)
        if client is None:
            self.refused += 1
            self._knocks.refused(sender.named(fields))
            raise NotAllowed("expected a valid key: Authorization: Bearer KEY, or x-api-key: KEY")
        if counted:
            client.take_request(self._clock)
        return client
