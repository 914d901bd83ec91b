"""What it would cost to send a request to each rank, by the rule of each policy: pure functions of the facts.

A cost function returns one number per rank, in the order of the facts' columns; the least wins. Costs are in
tokens where the rule has a unit. Rules that look at all ranks first return `inf` for those they pass over.
Each takes 20 to 80 us for 500 ranks.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from router.core.blocks import TOKEN_BYTES, namespace_root
from router.core.price import price, running, shared, together
from router.core.weights import HOST, KINDS

if TYPE_CHECKING:
    from router.core.facts import Facts
    from router.core.weights import Weights

# SGLang's cache_aware: requests, and times as many; the share of the prompt that a match must have.
BALANCE_GAP, BALANCE_RATIO, MATCH_SHARE = 64, 1.5, 0.5
# llm-d's sticky filter: the share of the prompt that a warm rank may lack; 1 - 0.8 would be less.
COLD_SHARE = 0.2
# Dynamo's credit for a hit in the host's memory and below it, the device's being 1.
HOST_CREDIT, LOWER_CREDIT = 0.75, 0.25


def priced(facts: Facts, weights: Weights) -> list[float]:
    """Return the tokens of the prompt to compute on each rank, and those to load back at their price."""
    tokens = list(facts.uncached)
    for tier, held in facts.lower.items():
        price = weights.price(tier)
        for at, count in held.items():
            tokens[at] += price * count
    return tokens


def kv(facts: Facts, weights: Weights) -> list[float]:
    """Least work: prefill in flight, own prefill at its price, and a share for each running request."""
    whole = price(facts, weights)
    own, each = shared(whole, facts, weights), running(whole, weights)
    work = priced(facts, weights) if facts.lower else facts.uncached
    if weights.batch and (again := together(facts, weights.batch)):
        work = [tokens + again.get(at, 0) for at, tokens in enumerate(work)]
    pairs = zip(facts.loads, work)  # noqa: B905 - `strict` costs 0.2 us, a tenth of a small decision
    costs = [load.inflight_tokens + own * tokens + each * load.active_requests for load, tokens in pairs]
    if facts.prompt.namespace.lora is not None and weights.adapter:
        loading = adapter(facts, weights)
        costs = [cost + more for cost, more in zip(costs, loading, strict=True)]
    if weights.occupancy:
        full, loads = weights.occupancy, facts.loads
        costs = [cost + full * load.occupancy for cost, load in zip(costs, loads, strict=True)]
    return costs


def adapter(facts: Facts, weights: Weights) -> list[float]:
    """Return what loading the request's LoRA adapter counts for on each rank, in tokens."""
    name, slots = facts.prompt.namespace.lora, weights.adapter_slots
    return [0.0 if name in rank.adapters[:slots] else weights.adapter for rank in facts.ranks]


def round_robin(facts: Facts, _weights: Weights) -> list[float]:
    """The rank that was chosen longest ago."""
    return [load.last_dispatch for load in facts.loads]


def random(facts: Facts, _weights: Weights) -> list[float]:
    """All alike; the draw decides."""
    return [0.0] * len(facts.uncached)


def least_requests(facts: Facts, _weights: Weights) -> list[float]:
    """Fewest requests running."""
    return [load.active_requests for load in facts.loads]


def least_tokens(facts: Facts, _weights: Weights) -> list[float]:
    """Fewest uncached tokens once this request is there."""
    return [load.inflight_tokens + tokens for load, tokens in zip(facts.loads, facts.uncached, strict=True)]


def lmetric(facts: Facts, _weights: Weights) -> list[float]:
    """LMetric: prefill tokens there with this request, times requests there with this request."""
    pairs = zip(facts.loads, facts.uncached, strict=True)
    return [(load.inflight_tokens + tokens) * (load.active_requests + 1) for load, tokens in pairs]


def dynamo(facts: Facts, _weights: Weights) -> list[float]:
    """Dynamo: blocks of prefill there with this request, less its credit for hits, and blocks being decoded.

    Blocks being decoded are those of our own requests' prompts; what they have generated is not known here.
    """
    size = facts.block_size
    tokens = facts.uncached
    if facts.lower:
        tokens = list(tokens)
        for tier, held in facts.lower.items():
            lost = 1.0 - (HOST_CREDIT if KINDS.get(tier) == HOST else LOWER_CREDIT)
            for at, count in held.items():
                tokens[at] += lost * count
    pairs = zip(facts.loads, tokens, strict=True)
    return [(load.inflight_tokens + own + load.context_tokens) / size for load, own in pairs]


def cache_aware(facts: Facts, _weights: Weights) -> list[float]:
    """SGLang: the shortest queue while loads are far apart, else the longest match or the smallest tree."""
    rule = cache_aware_rule(facts)
    if rule == "balance":
        return least_requests(facts, _weights)
    if rule == "match":
        return facts.uncached
    return [rank.view.size() for rank in facts.ranks]


def cache_aware_rule(facts: Facts) -> str:
    """Return what decides: balance, match, or tree."""
    requests = [load.active_requests for load in facts.loads]
    most, least = max(requests), min(requests)
    if most - least > BALANCE_GAP and most > BALANCE_RATIO * least:
        return "balance"
    count = facts.prompt_tokens
    return "match" if count - min(facts.uncached) > MATCH_SHARE * count else "tree"


def sticky(facts: Facts, weights: Weights) -> list[float]:
    """llm-d: only ranks that hold most of the prompt, unless a first token comes much sooner from others.

    That is, for the rank of the least prefill among each kind, the same as a fixed number of tokens on those
    that hold little: so many as are computed in the time.
    """
    most = COLD_SHARE * facts.prompt_tokens
    cold = weights.sticky_seconds * weights.prefill_speed
    pairs = zip(facts.loads, facts.uncached, strict=True)
    return [load.inflight_tokens + tokens + (0.0 if tokens <= most else cold) for load, tokens in pairs]


def preble(facts: Facts, weights: Weights) -> list[float]:
    """Preble E2: where most of the prompt is held, by load; else by load and what has to be computed."""
    each, least = weights.active, min(facts.uncached)
    pairs = zip(facts.loads, facts.uncached, strict=True)
    if facts.prompt_tokens - least <= least:
        return [load.inflight_tokens + each * load.active_requests + tokens for load, tokens in pairs]
    return [
        load.inflight_tokens + each * load.active_requests if tokens == least else inf
        for load, tokens in pairs
    ]


def session(facts: Facts, weights: Weights) -> list[float]:
    """Return the place that a session has on each rank; kv's cost for a request of none.

    The same session goes to the same rank in every router.
    """
    if facts.session is None:
        return kv(facts, weights)
    return facts.lineup.rendezvous.places(xxh3_64_intdigest(facts.session))


def prefix_hash(facts: Facts, weights: Weights) -> list[float]:
    """Return the place that a prompt's beginning has on each rank; one more where too many requests run.

    Consistent hashing with bounded loads, in its rendezvous form. A prompt that is not known goes by load.
    """
    tokens = facts.prompt.tokens[: weights.prefix_tokens * TOKEN_BYTES]
    if not tokens:
        return least_requests(facts, weights)
    requests = [load.active_requests for load in facts.loads]
    most = weights.bound * (sum(requests) + 1) / len(requests)
    key = xxh3_64_intdigest(tokens, namespace_root(facts.prompt.namespace, 1))
    places = facts.lineup.rendezvous.places(key)
    for at, count in enumerate(requests):
        if count >= most:
            places[at] += 1.0
    return places
