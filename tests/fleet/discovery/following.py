"""A fleet that follows sources, in front of stand-ins."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.fleet.allowed import Allowed
from router.fleet.discovery.discovery import Discovery
from router.fleet.discovery.reconciler import Reconciler
from router.fleet.membership import Membership
from tests.fleet.test_fleet import fleet_with

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from router.fleet.allowed import Network
    from router.fleet.discovery.wanted import Source, Tell, Wanted
    from router.fleet.fleet import Fleet
    from router.fleet.spec import WorkerSpec
    from router.fleet.worker import Worker


@dataclass(slots=True)
class Following:
    """What follows, and the fleet that is made."""

    fleet: Fleet
    membership: Membership
    discovery: Discovery

    def taking(self) -> list[str]:
        """Return the URLs of the workers that take requests."""
        routes = self.fleet.models().values()
        return sorted({rank.worker for route in routes for rank in route.ranks})

    def worker(self, url: str) -> Worker:
        """Return a worker."""
        return self.fleet.workers[url]


@asynccontextmanager
async def following(
    *sources: Source, given: Sequence[WorkerSpec] = (), networks: Sequence[Network] = ()
) -> AsyncIterator[Following]:
    """Run a fleet that follows sources."""
    async with fleet_with(*given) as fleet:
        membership = Membership(fleet.roster, Allowed(networks), drain_seconds=30.0)
        reconciler = Reconciler(membership, fleet.workers, networks)
        discovery = Discovery(reconciler, sources, given)
        discovery.start()
        try:
            yield Following(fleet, membership, discovery)
        finally:
            await discovery.close()
            await membership.close()


class Said:
    """A source that says what a test wants."""

    def __init__(self, name: str = "said", *wanted: Wanted) -> None:
        self.name = name
        self.failing = False
        self._wanted: list[Wanted] = list(wanted)
        self._tell: Tell | None = None

    async def run(self, tell: Tell) -> None:
        """Tell what is wanted."""
        self._tell = tell
        tell(self._wanted)
        await asyncio.Event().wait()

    def want(self, *wanted: Wanted) -> None:
        """Want these and no others."""
        self._wanted = list(wanted)
        if self._tell is not None:
            self._tell(self._wanted)


class Lines(logging.Handler):
    """The router's log, as lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(record.getMessage())

    def count(self, part: str) -> int:
        """Return in how many lines something is."""
        return sum(part in line for line in self.lines)


@asynccontextmanager
async def logged() -> AsyncIterator[Lines]:
    """Collect what the router logs."""
    lines, logger = Lines(), logging.getLogger("router")
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)
