"""How often a token counts that a rank has to compute: more than once, for others pay for it, too.

The request itself waits for each of its own tokens once. Beyond that,

- while they are computed nobody else's are. In a queue that is busy for a share b of the time, a token more
  keeps those who come later waiting for 1 / (1 - b) tokens: so much longer is the busy time that it begins.
  It does not grow without bound, since no rush lasts for ever;
- where the cache is full, their blocks take the place of others, which will have to be computed again;
- a prefix that is being computed for the first time, on another rank, has not been asked for again yet: a
  copy of it is likely to serve nobody else;
- but where many come for it at once, and did so before, most of them wait before the ranks that hold it, and
  a copy serves its share of each crowd that comes. Then a token of it may count for less than it is.

It is one number for all ranks of a decision: what it weighs is computing once more against waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.core.facts import Facts
    from router.core.ledger import Load
    from router.core.weights import Weights

# Tokens that a rank computes in half a second, about: how far ahead it counts that it is busy.
HORIZON = 8192
# The price from which a running request counts for all of its weight: where nothing waits, how many run there
# costs the next one little.
DEAR = 3.0
# Two within a second may be chance: where there are many prefixes, and much traffic, it often is.
BY_CHANCE = 2.0
# Of so many ranks or more, every second, third ... tells how busy they are; and what is predicted on so many
# is no news.
MANY = 128


def price(facts: Facts, weights: Weights) -> float:
    """Return how often an uncached token counts. About 5 us, and 0.03 us for each rank with predictions."""
    delay = (
        1.0 / (1.0 - busy(facts.loads) * (1.0 - 1.0 / weights.saturated)) if weights.saturated > 1 else 1.0
    )
    copies = weights.copy * max(facts.full, unproven(facts)) if weights.copy else 0.0
    return weights.uncached * delay + copies


def shared(price: float, facts: Facts, weights: Weights) -> float:
    """Return what is left of a price where a crowd is expected, its others shared out among the ranks."""
    others = facts.crowd - BY_CHANCE
    return price / (1.0 + weights.crowd * others / len(facts.loads)) if others > 0 else price


def running(price: float, weights: Weights) -> float:
    """Return what a running request counts for, in tokens: all of its weight once tokens are dear."""
    return weights.active * min(1.0, price / DEAR)


def busy(loads: Sequence[Load]) -> float:
    """Return the share of the next half second for which ranks have tokens to compute by now, 0 to 1."""
    some = loads[:: len(loads) // MANY + 1]
    ahead = [tokens if (tokens := load.inflight_tokens) < HORIZON else HORIZON for load in some]
    return sum(ahead) / (HORIZON * len(ahead) or 1)


def unproven(facts: Facts) -> float:
    """Return the share of what is held of the prompt, where most is, that no rank has confirmed, 0 to 1."""
    reach = held = 0
    for group, match in zip(facts.lineup.groups, facts.matches, strict=False):
        reach = max(reach, group.block_size * match.deepest)
        held = max(held, group.block_size * match.proven)
    return 1.0 - min(held, reach) / reach if reach else 0.0


def together(facts: Facts, batch: int) -> dict[int, int]:
    """Return the predicted tokens that ranks will compute once more for this prompt, by position.

    SGLang caches a prompt when its prefill is over, so of two that come during one decode step, and fit into
    one batch of `batch` tokens, each is computed whole. Where nobody decodes, the first is begun at once, and
    done when the second gets its turn; so it is where the second has to wait for another batch.
    """
    found: dict[int, int] = {}
    for (size, _, seats, _), match in zip(facts.lineup.groups, facts.matches, strict=False):
        if len(match.more) >= MANY:
            continue
        for slot, blocks in match.more.items():
            at = seats.get(slot)
            if at is not None and _shares_batch(facts, at, batch):
                inflight = facts.loads[at].inflight_tokens
                found[at] = min((blocks - match.of(slot)[0]) * size, inflight, batch - inflight)
    return found


def _shares_batch(facts: Facts, at: int, batch: int) -> bool:
    """Whether what is in flight at a rank, and this prompt, will be computed in one batch."""
    load = facts.loads[at]
    if not 0 < load.inflight_tokens < batch or load.active_requests == load.waiting_requests:
        return False
    return not facts.ranks[at].view.counts_copies  # vLLM caches a block as soon as a step is to fill it
