"""An answer that was cut after its first byte: it has failed, whatever its status had said by then."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.api.exchange import Exchange
    from router.core.rank import Rank
    from router.errors import UpstreamFailed
    from router.fleet.fleet import Fleet
    from router.observe.metrics import Metrics


def note_cut(
    fleet: Fleet, metrics: Metrics, exchange: Exchange, rank: Rank, failure: UpstreamFailed, trial: int
) -> None:
    """Tell metrics, who watches the request, and the breaker of the rank's worker; it was that `trial`."""
    metrics.failed(failure)
    if exchange.story is not None:
        exchange.story.failed(failure)
    failure.trial = trial
    fleet.failed(rank, failure, begun=True)
