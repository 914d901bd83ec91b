"""What goes into the cost of one rank, by the name of each part: for /explain, never on a request's way.

The terms of kv, least_tokens, dynamo, sticky and preble add up to the cost; those of the others are what
their rule looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from router.core import costs
from router.core.price import price, running, shared, together

if TYPE_CHECKING:
    from router.core.facts import Facts
    from router.core.weights import Weights

Terms: TypeAlias = dict[str, float | str]


def kv(facts: Facts, weights: Weights, at: int) -> Terms:
    """In tokens; `uncached`, `load_back` and `batch` (what is computed again) have their price already."""
    load, whole = facts.loads[at], price(facts, weights)
    own = shared(whole, facts, weights)
    uncached = own * facts.uncached[at]
    found: Terms = {
        "inflight": load.inflight_tokens,
        "uncached": uncached,
        "load_back": own * costs.priced(facts, weights)[at] - uncached,
        "batch": own * together(facts, weights.batch).get(at, 0),
        "active": running(whole, weights) * load.active_requests,
    }
    if facts.prompt.namespace.lora is not None:
        found["adapter"] = costs.adapter(facts, weights)[at]
    if weights.occupancy:
        found["occupancy"] = weights.occupancy * load.occupancy
    return found


def round_robin(facts: Facts, _weights: Weights, at: int) -> Terms:
    """The number of the rank's last request."""
    return {"last_dispatch": facts.loads[at].last_dispatch}


def random(_facts: Facts, _weights: Weights, _at: int) -> Terms:
    """Nothing goes into it."""
    return {}


def least_requests(facts: Facts, _weights: Weights, at: int) -> Terms:
    """In requests."""
    return {"requests": facts.loads[at].active_requests}


def least_tokens(facts: Facts, _weights: Weights, at: int) -> Terms:
    """In tokens."""
    return {"inflight": facts.loads[at].inflight_tokens, "uncached": facts.uncached[at]}


def lmetric(facts: Facts, weights: Weights, at: int) -> Terms:
    """In tokens and requests: `inflight` and `uncached` times one more than `requests`."""
    return {**least_tokens(facts, weights, at), "requests": facts.loads[at].active_requests}


def dynamo(facts: Facts, weights: Weights, at: int) -> Terms:
    """In blocks."""
    load, size = facts.loads[at], facts.block_size
    prefill = float(costs.dynamo(facts, weights)[at]) - (load.inflight_tokens + load.context_tokens) / size
    return {"inflight": load.inflight_tokens / size, "prompt": prefill, "decode": load.context_tokens / size}


def cache_aware(facts: Facts, _weights: Weights, at: int) -> Terms:
    """The rule that holds now, and what it looks at: requests, uncached tokens, or tokens held."""
    return {
        "rule": costs.cache_aware_rule(facts),
        "requests": facts.loads[at].active_requests,
        "uncached": facts.uncached[at],
        "tree": facts.ranks[at].view.size(),
    }


def sticky(facts: Facts, weights: Weights, at: int) -> Terms:
    """In tokens; `cold` stands for the time that a warm rank may be slower."""
    found = least_tokens(facts, weights, at)
    inflight = facts.loads[at].inflight_tokens + facts.uncached[at]
    return {**found, "cold": float(costs.sticky(facts, weights)[at]) - inflight}


def preble(facts: Facts, weights: Weights, at: int) -> Terms:
    """In tokens; `uncached` counts only where no rank holds most of the prompt."""
    load, uncached = facts.loads[at], facts.uncached[at]
    least = min(facts.uncached)
    exploits = facts.prompt_tokens - least > least
    passed_over = exploits and uncached > least
    return {
        "inflight": load.inflight_tokens,
        "active": weights.active * load.active_requests,
        "uncached": costs.PASSED_OVER if passed_over else 0.0 if exploits else uncached,
    }


def session(facts: Facts, weights: Weights, at: int) -> Terms:
    """The rank's place for the session, from 0 to 1; without one those of kv."""
    if facts.session is None:
        return kv(facts, weights, at)
    return {"place": float(costs.session(facts, weights)[at])}


def prefix_hash(facts: Facts, weights: Weights, at: int) -> Terms:
    """The rank's place for the prompt's beginning, from 0 to 1, and whether too many requests run there."""
    requests = facts.loads[at].active_requests
    if not facts.prompt.tokens:
        return {"requests": requests}
    place = float(costs.prefix_hash(facts, weights)[at])
    return {"place": place % 1.0, "full": float(place >= 1.0), "requests": requests}
