"""How fast an answer comes, as its client sees it: the first of a stream, and the rest of it.

Nothing of a stream is parsed for it. Engines send the first bytes with the first token; at the end it is
known how long the rest took, and in how many tokens, where the client had asked for usage, or else in how
many pieces it came: one a scheduler step, unless the router or the network had to join some.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.api.exchange import Exchange
    from router.api.planner import Plan
    from router.observe.metrics import Metrics
    from router.proxy.relay import Relayed

_OK = 200


def begun(metrics: Metrics, plan: Plan, exchange: Exchange) -> None:
    """Take note that the first of an answer has gone out. About 0.4 us."""
    exchange.first = now = perf_counter()
    response = exchange.response
    if plan.request.stream and response is not None and response.status == _OK:
        metrics.of(plan.route.model).first_token.observe(now - exchange.began)


def ended(metrics: Metrics, plan: Plan, exchange: Exchange, relayed: Relayed) -> None:
    """Take note of an answer that has come to its end, whole or not. About 1 us."""
    if relayed.failure is not None or relayed.status != _OK:
        return
    tokens = relayed.generated()
    counts = metrics.of(plan.route.model)
    counts.generated_tokens += tokens
    steps = (tokens or relayed.pieces) - 1
    if steps > 0 and plan.request.stream:
        histogram = counts.between["tokens" if tokens else "pieces"]
        histogram.observe((perf_counter() - exchange.first) / steps)
