"""What it would cost to send a request to each rank, by the rule of each policy: pure functions of the facts.

A cost function returns one number per rank, in the order of the facts' columns; the least wins. Costs are in
tokens where the rule has a unit. Rules that look at all ranks first add `PASSED_OVER` for some. Where there
are many ranks, costs may be a column of numpy's. Each takes 5 to 40 us for 500 ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from xxhash import xxh3_64_intdigest

from router.core.blocks import TOKEN_BYTES, namespace_root
from router.core.price import price, running, shared, together
from router.core.weights import HOST, KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from router.core.facts import Facts
    from router.core.weights import Weights

# SGLang's cache_aware: requests, and times as many; the share of the prompt that a match must have.
BALANCE_GAP, BALANCE_RATIO, MATCH_SHARE = 64, 1.5, 0.5
# llm-d's sticky filter: the share of the prompt that a warm rank may lack; 1 - 0.8 would be less.
COLD_SHARE = 0.2
# In tokens, more than any rank ever has to compute.
PASSED_OVER = float(1 << 60)
# Dynamo's credit for a hit in the host's memory and below it, the device's being 1.
HOST_CREDIT, LOWER_CREDIT = 0.75, 0.25

# One number per rank.
Amounts: TypeAlias = "Sequence[float] | NDArray[np.float64]"
# Of a load, or of what many show (`Shown`): arithmetic, in which a comparison counts as 0 or 1.
Formula: TypeAlias = "Callable[[Any, Any], Any]"

_requests = attrgetter("active_requests")


def priced(facts: Facts, weights: Weights) -> list[float]:
    """Return the tokens of the prompt to compute on each rank, and those to load back at their price."""
    tokens = list(facts.uncached)
    for tier, held in facts.lower.items():
        price = weights.price(tier)
        for at, count in held.items():
            tokens[at] += price * count
    return tokens


def of_loads(facts: Facts, said: Callable[[Any], Any]) -> Amounts:
    """Return one number of each rank's load."""
    columns = facts.lineup.columns
    if columns is None:
        return list(map(said, facts.loads))
    amounts: Amounts = said(columns.now())
    return amounts


def formed(facts: Facts, tokens: Sequence[float], formula: Formula) -> Amounts:
    """Return what a formula makes of each rank's load and `tokens`."""
    columns = facts.lineup.columns
    if columns is None:
        pairs = zip(facts.loads, tokens)  # noqa: B905 - `strict` costs 0.2 us, a tenth of a small decision
        return [formula(load, own) for load, own in pairs]
    own = columns.of(tokens) if facts.column is None or tokens is not facts.uncached else facts.column
    amounts: Amounts = formula(columns.now(), own)
    return amounts


def kv(facts: Facts, weights: Weights) -> Amounts:
    """Least work: prefill in flight, own prefill at its price, and a share for each running request."""
    whole = price(facts, weights)
    own, each = shared(whole, facts, weights), running(whole, weights)
    work = priced(facts, weights) if facts.lower else facts.uncached
    if weights.batch and (again := together(facts, weights.batch)):
        work = [tokens + again.get(at, 0) for at, tokens in enumerate(work)]
    costs = formed(
        facts,
        work,
        lambda load, tokens: load.inflight_tokens + own * tokens + each * load.active_requests,
    )
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


def round_robin(facts: Facts, _weights: Weights) -> Amounts:
    """The rank that was chosen longest ago."""
    return of_loads(facts, attrgetter("last_dispatch"))


def random(facts: Facts, _weights: Weights) -> Amounts:
    """All alike; the draw decides."""
    return [0.0] * len(facts.uncached)


def least_requests(facts: Facts, _weights: Weights) -> Amounts:
    """Fewest requests running."""
    return of_loads(facts, _requests)


def least_tokens(facts: Facts, _weights: Weights) -> Amounts:
    """Fewest uncached tokens once this request is there."""
    return formed(facts, facts.uncached, lambda load, tokens: load.inflight_tokens + tokens)


def lmetric(facts: Facts, _weights: Weights) -> Amounts:
    """LMetric: prefill tokens there with this request, times requests there with this request."""
    return formed(
        facts,
        facts.uncached,
        lambda load, tokens: (load.inflight_tokens + tokens) * (load.active_requests + 1),
    )


def dynamo(facts: Facts, _weights: Weights) -> Amounts:
    """Dynamo: blocks of prefill there with this request, less its credit for hits, and blocks being decoded.

    Blocks being decoded are those of our own requests' prompts; what they have generated is not known here.
    """
    size = facts.block_size
    tokens: Sequence[float] = facts.uncached
    if facts.lower:
        tokens = list(tokens)
        for tier, held in facts.lower.items():
            lost = 1.0 - (HOST_CREDIT if KINDS.get(tier) == HOST else LOWER_CREDIT)
            for at, count in held.items():
                tokens[at] += lost * count
    return formed(facts, tokens, lambda load, own: (load.inflight_tokens + own + load.context_tokens) / size)


def cache_aware(facts: Facts, weights: Weights) -> Amounts:
    """SGLang: the shortest queue while loads are far apart, else the longest match or the smallest tree."""
    rule = cache_aware_rule(facts)
    if rule == "balance":
        return least_requests(facts, weights)
    if rule == "match":
        return facts.uncached
    return [rank.view.size() for rank in facts.ranks]


def cache_aware_rule(facts: Facts) -> str:
    """Return what decides: balance, match, or tree."""
    requests = of_loads(facts, _requests)
    if isinstance(requests, Sequence):
        most, least = max(requests), min(requests)
    else:
        most, least = float(requests.max()), float(requests.min())
    if most - least > BALANCE_GAP and most > BALANCE_RATIO * least:
        return "balance"
    count = facts.prompt_tokens
    return "match" if count - min(facts.uncached) > MATCH_SHARE * count else "tree"


def sticky(facts: Facts, weights: Weights) -> Amounts:
    """llm-d: only ranks that hold most of the prompt, unless a first token comes much sooner from others.

    That is, for the rank of the least prefill among each kind, the same as a fixed number of tokens on those
    that hold little: so many as are computed in the time.
    """
    most = COLD_SHARE * facts.prompt_tokens
    cold = weights.sticky_seconds * weights.prefill_speed
    return formed(
        facts, facts.uncached, lambda load, tokens: load.inflight_tokens + tokens + (tokens > most) * cold
    )


def preble(facts: Facts, weights: Weights) -> Amounts:
    """Preble E2: where most of the prompt is held, by load; else by load and what has to be computed."""
    each, least = weights.active, min(facts.uncached)
    exploits = facts.prompt_tokens - least > least

    def cost(load: Any, tokens: Any) -> Any:
        return (
            load.inflight_tokens
            + each * load.active_requests
            + ((tokens > least) * PASSED_OVER if exploits else tokens)
        )

    return formed(facts, facts.uncached, cost)


def session(facts: Facts, weights: Weights) -> Amounts:
    """Return the place that a session has on each rank; kv's cost for a request of none.

    The same session goes to the same rank in every router.
    """
    if facts.session is None:
        return kv(facts, weights)
    return facts.lineup.rendezvous.places(xxh3_64_intdigest(facts.session))


def prefix_hash(facts: Facts, weights: Weights) -> Amounts:
    """Return the place that a prompt's beginning has on each rank; one more where too many requests run.

    Consistent hashing with bounded loads, in its rendezvous form. A prompt that is not known goes by load.
    """
    tokens = facts.prompt.tokens[: weights.prefix_tokens * TOKEN_BYTES]
    if not tokens:
        return least_requests(facts, weights)
    key = xxh3_64_intdigest(tokens, namespace_root(facts.prompt.namespace, 1))
    return facts.lineup.rendezvous.bounded(key, of_loads(facts, _requests), weights.bound)
