"""The fleet of a router that serves, and all who change it: operators, lists, clusters, other processes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from router.assembly import fleet_of
from router.fleet.allowed import Allowed
from router.fleet.discovery.discovery import Discovery
from router.fleet.discovery.reconciler import Reconciler
from router.fleet.membership import Membership
from router.fleet.snapshot import each_row
from router.proxy.upstream import Upstream
from router.share.company import Company

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from router.derived import Rules
    from router.fleet.fleet import Fleet
    from router.observe.metrics import Metrics
    from router.observe.rows import WorkerRow
    from router.proxy.descriptors import Descriptors
    from router.startup import Startup


@dataclass(frozen=True, slots=True)
class Members:
    """The fleet; `membership` lets workers come and go, `discovery` finds them, `company` knows of others."""

    fleet: Fleet
    membership: Membership
    discovery: Discovery
    company: Company

    async def start(self) -> None:
        """Begin to ask workers, to look for more, and to take part."""
        self.fleet.start()
        self.discovery.start()
        await self.company.start()

    async def close(self) -> None:
        """End it all."""
        await self.discovery.close()
        await self.membership.close()
        await self.fleet.close()
        await self.company.close()

    def changes(self, advance: Callable[[], None]) -> None:
        """Have those look again for whom it matters which workers there are, from now on."""
        self.fleet.on_change = partial(_changed, asyncio.get_running_loop(), self.company, advance)


def members_of(startup: Startup, rules: Rules, metrics: Metrics, descriptors: Descriptors) -> Members:
    """Return the fleet that the settings want; needs a running loop."""
    config, front = startup.config, startup.front
    fleet = fleet_of(
        config,
        rules,
        prepare=startup.tokenizers.prepare,
        connect=partial(
            Upstream,
            tls=front.worker_tls,
            key=config.worker_api_key,
            connected=metrics.stages["connect"].observe,
            starved=descriptors.missing,
        ),
        parts=startup.witness.parts,
    )
    membership = Membership(fleet.roster, Allowed(config.worker_allow), drain_seconds=config.drain_seconds)
    reconciler = Reconciler(membership, fleet.workers, config.worker_allow)
    discovery = Discovery(reconciler, startup.sources, config.workers)
    return Members(fleet, membership, discovery, Company(config, startup.team, fleet))


def rows_of(startup: Startup, members: Members) -> Iterator[WorkerRow]:
    """Yield a row for each worker, each of the moment when it is asked for."""
    rows = each_row(members.fleet.workers.values(), startup.tokenizers.mode)
    return map(members.company.with_others, rows)


def _changed(loop: asyncio.AbstractEventLoop, company: Company, advance: Callable[[], None]) -> None:
    company.changed()
    loop.call_soon(advance)
