"""Which batch runs next: a prefill when one can be made, else a decode step, else nothing.

A request is admitted only if the cache can hold its prompt and all of its output, so that a decode step
never runs out of pages. Prompts longer than the chunk budget are computed in page-aligned pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.engine.rank import Rank
    from workers.engine.request import Request


@dataclass(slots=True)
class Step:
    """One batch on its way: `pieces` are the requests with the tokens each computes; empty for decode."""

    decode: list[Request] = field(default_factory=list)
    pieces: list[tuple[Request, int]] = field(default_factory=list)
    seconds: float = 0.0


def next_step(rank: Rank) -> Step | None:
    """Merge the last batch, then return the next one with its duration; None when there is nothing to run."""
    rank.running += rank.last_batch
    rank.last_batch = []
    _drop_aborted(rank)
    profile = rank.config.profile
    if pieces := _prefill(rank):
        return Step(pieces=pieces, seconds=profile.prefill_seconds(sum(size for _, size in pieces)))
    if rank.running:
        return Step(decode=rank.running, seconds=profile.decode_seconds(len(rank.running)))
    return None


def _drop_aborted(rank: Rank) -> None:
    if rank.chunked is not None and rank.chunked.aborted:
        rank.end(rank.chunked, "abort")
        rank.chunked = None
    for request in [request for request in rank.running if request.aborted]:
        rank.store(request)
        rank.end(request, "abort")
    rank.running = [request for request in rank.running if not request.aborted]


def _prefill(rank: Rank) -> list[tuple[Request, int]]:
    budget = rank.config.chunk_tokens
    pieces: list[tuple[Request, int]] = []
    while budget > 0 and (request := _candidate(rank, len(pieces))) is not None:
        size = _piece(rank, request, budget)
        if size == 0:
            rank.chunked = request
            break
        rank.chunked = request if size < request.uncached else None
        request.computed += size
        rank.grow(request)
        pieces.append((request, size))
        budget -= size
    return pieces


def _candidate(rank: Rank, taken: int) -> Request | None:
    """Return the request being chunked, or admit the one that has waited longest."""
    if rank.chunked is not None:
        return rank.chunked if taken == 0 else None
    if not rank.waiting or len(rank.running) + taken >= rank.config.max_running:
        return None
    return rank.waiting.popleft() if _admit(rank, rank.waiting[0]) else None


def _admit(rank: Rank, request: Request) -> bool:
    """Lock the cached prefix and promise the rest, if the rest fits.

    The whole prompt is looked up, so that a prompt that is resident to its end splits nothing; its last
    token is computed all the same.
    """
    cache, sequence = rank.cache, request.sequence
    found = cache.match(sequence.digests_of(len(sequence)))
    usable = min(found.pages, sequence.pages(len(sequence) - 1))
    cache.lock(found.node)
    left = request.max_new - len(request.output)
    need = -(-(len(sequence) + left) // cache.page_size) - usable
    if need > cache.free + cache.evictable - rank.promised:
        cache.unlock(found.node)
        return False
    request.node, request.shared, request.promised = found.node, usable, need
    request.computed = usable * cache.page_size
    rank.promised += need
    _count_hit(rank, request)
    return True


def _count_hit(rank: Rank, request: Request) -> None:
    if request.cached_tokens is None:
        request.cached_tokens = request.computed
        rank.counters.prompt_tokens += request.prompt_tokens
        rank.counters.cached_tokens += request.computed


def _piece(rank: Rank, request: Request, budget: int) -> int:
    """Return how many tokens of a prompt fit the budget; a piece that is not the last ends at a page."""
    if request.uncached <= budget:
        return request.uncached
    size = rank.config.page_size
    return max(0, (request.computed + budget) // size * size - request.computed)
