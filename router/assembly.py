"""The fleet, as the settings want it: for whoever serves it, and for whoever only listens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.fleet.fleet import Fleet
from router.fleet.limits import ViewLimits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from router.config import Config
    from router.derived import Rules
    from router.engines.description import Description
    from router.fleet.parts import Parts
    from router.proxy.upstream import Upstream


def fleet_of(
    config: Config,
    rules: Rules,
    *,
    prepare: Callable[[Description, Upstream], Awaitable[None]],
    connect: Callable[..., Upstream],
    parts: Parts,
) -> Fleet:
    """Return the fleet; needs a running loop. For the rest see `Fleet`."""
    return Fleet(
        config.workers,
        upstream_limits=rules.limits,
        view_limits=ViewLimits(
            predicted_ttl=config.predicted_ttl_seconds,
            approximate_ttl=config.approximate_ttl_seconds,
            predicted_bound=config.predicted_max_blocks,
            index_bound=config.index_max_blocks,
            replay_seconds=config.replay_seconds,
        ),
        probe_seconds=config.probe_seconds,
        load_seconds=config.load_seconds,
        prepare=prepare,
        connect=connect,
        breaker=rules.breaker,
        parts=parts,
    )
