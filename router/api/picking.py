"""Requests that somebody else sends: the router says where to, and is told what becomes of them."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from router.core.breaker import Failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core.accounts import Entry
    from router.core.facts import Candidate
    from router.fleet.worker import Worker

_OK = 200
_REFUSALS = frozenset({429, 503})


class Pick:
    """One request on its way to the worker of `candidate`; counted there until `close`."""

    __slots__ = ("_answered", "_leave", "_ticket", "_trial", "_worker", "candidate")

    def __init__(
        self, candidate: Candidate, worker: Worker, ticket: Entry, leave: Callable[[bool], None]
    ) -> None:
        self.candidate = candidate
        self._worker = worker
        self._ticket = ticket
        self._leave: Callable[[bool], None] | None = leave
        self._answered = False
        self._trial = worker.health.begun() if candidate.rank.breaker.troubled else 0

    @property
    def pins(self) -> tuple[tuple[bytes, bytes], ...]:
        """The headers without which the worker would choose a rank itself."""
        return self._worker.pins[self.candidate.rank.rank]

    def began(self, status: int) -> None:
        """The worker's answer has begun with this status."""
        health, breaker = self._worker.health, self.candidate.rank.breaker
        self._answered = status == _OK
        if status in _REFUSALS:
            health.refused(None)
        elif status in health.rules.statuses:
            health.failed(Failure.STATUS, f"it answers {status}", self._trial)
        else:
            breaker.good += 1
            if breaker.troubled:
                health.succeeded(self._trial)

    def computed(self) -> None:
        """The answer's body has begun: the prompt is no longer in flight."""
        self._ticket.first_token()

    def close(self) -> None:
        """The request is over, however; any number of times."""
        leave, self._leave = self._leave, None
        if leave is not None:
            self._ticket.close()
            if self.candidate.rank.breaker.troubled:
                self._worker.health.ended(self._trial)
            leave(self._answered)


def endpoint_of(worker: Worker) -> str | None:
    """Return `address:port` of a worker, None where only its name is known: others must not look it up."""
    address, port = worker.upstream.peer
    try:
        found = ip_address(address)
    except ValueError:
        return None
    shown = f"[{found}]" if found.version == 6 else str(found)  # noqa: PLR2004 - the version's own number
    return f"{shown}:{port}"
