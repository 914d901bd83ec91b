"""Which of a model's workers fail far more often than the others do. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.breaker import FEWEST_REQUESTS, BreakerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.core.breaker import Breaker

# A share of failures below which nobody stands out.
LEAST_SHARE = 0.1


def outlier(breakers: Sequence[Breaker], ratio: float) -> Breaker | None:
    """Return the breaker to eject, of those of one model's workers: the worst, if it stands out.

    It stands out when its share of failures in the window is `ratio` times that of all others together, and
    a tenth at least. None while half of the workers are out already: so many are no outliers. O(workers).
    """
    closed = [breaker for breaker in breakers if breaker.state is BreakerState.CLOSED]
    if not ratio or len(closed) - 1 < len(breakers) / 2:
        return None
    counts = [breaker.counts() for breaker in closed]
    shares = [bad / (good + bad) if good + bad >= FEWEST_REQUESTS else 0.0 for good, bad in counts]
    worst = max(range(len(closed)), key=shares.__getitem__)
    good = sum(good for good, _ in counts) - counts[worst][0]
    bad = sum(bad for _, bad in counts) - counts[worst][1]
    others = bad / (good + bad) if good + bad else 1.0
    return closed[worst] if shares[worst] >= max(LEAST_SHARE, ratio * others) else None
