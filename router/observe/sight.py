"""What there is to see of a router, whichever of its processes is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from router.observe.rows import ShareRow, WorkerRow, workers_json

if TYPE_CHECKING:
    from router.observe.exposition import Exposition

Share = Callable[[], ShareRow | None]


class Sight(Protocol):
    """The answers of GET /metrics and GET /workers."""

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return body and content type of /metrics."""

    async def workers(self) -> bytes:
        """Return the body of /workers."""

    async def rows(self) -> list[WorkerRow]:
        """Return the rows of /workers; other things may be done between two."""


class OwnSight:
    """A router of one process shows what that sees."""

    def __init__(self, exposition: Exposition, share: Share) -> None:
        self._exposition = exposition
        self._share = share

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """See `Sight`."""
        return await self._exposition.render(accept)

    async def workers(self) -> bytes:
        """See `Sight`."""
        return workers_json(await self.rows(), self._share())

    async def rows(self) -> list[WorkerRow]:
        """See `Sight`."""
        return await self._exposition.rows()
