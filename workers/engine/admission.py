"""Which batch runs next: a prefill when one can be made, else a decode step, else nothing.

Prompts longer than the chunk budget are computed in page-aligned pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workers.engine.pressure import decayed, fits, retract

if TYPE_CHECKING:
    from workers.engine.rank import Rank
    from workers.engine.request import Request


@dataclass(slots=True)
class Piece:
    """The part of a prompt that one batch computes: up to `computed` tokens; `last`: nothing is left."""

    request: Request
    size: int
    computed: int
    last: bool


@dataclass(slots=True)
class Step:
    """One batch on its way: `pieces` of prompts, or else the requests it decodes."""

    decode: list[Request] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    seconds: float = 0.0


def next_step(rank: Rank, now: float) -> Step | None:
    """Merge the last batch, then return the next one with its duration; None when there is nothing to run."""
    merge(rank)
    if pieces := _prefill(rank):
        seconds = rank.config.profile.prefill_seconds(sum(piece.size for piece in pieces))
        loaded = max(piece.request.ready_at for piece in pieces)
        return Step(pieces=pieces, seconds=max(seconds, loaded - now))
    return decode_step(rank)


def merge(rank: Rank) -> None:
    """Let the prompts of the last batch be decoded, and drop what has been aborted."""
    if rank.last_batch:
        rank.running = rank.running + rank.last_batch
        rank.last_batch = []
    _drop_aborted(rank)


def decode_step(rank: Rank) -> Step | None:
    """Return a decode step of all that runs, or of those left when that is more than there is memory for.

    When a batch is under way its result comes first. If all were retracted, the step is empty: the scheduler
    looks again at once, since others may fit now.
    """
    if not rank.running:
        return None
    if not fits(rank):
        if rank.launched:
            return None
        retract(rank)
        if not rank.running:
            return Step()
    rank.new_token_ratio = decayed(rank.new_token_ratio)
    return Step(decode=rank.running, seconds=rank.config.profile.decode_seconds(len(rank.running)))


def _drop_aborted(rank: Rank) -> None:
    if rank.chunked is not None and rank.chunked.aborted:
        rank.end(rank.chunked, "abort")
        rank.chunked = None
    aborted = [request for request in rank.running if request.aborted]
    for request in aborted:
        rank.memory.store(request, request.computed)
        rank.end(request, "abort")
    if aborted:
        rank.running = [request for request in rank.running if not request.aborted]


def _prefill(rank: Rank) -> list[Piece]:
    budget = rank.config.chunk_tokens
    pieces: list[Piece] = []
    while budget > 0 and (request := _candidate(rank, len(pieces))) is not None:
        size = _piece(rank, request, budget)
        if size == 0:
            rank.chunked = request
            break
        pieces.append(_launch(rank, request, size))
        budget -= size
    return pieces


def _launch(rank: Rank, request: Request, size: int) -> Piece:
    last = size == request.uncached
    rank.chunked = None if last else request
    request.computed += size
    rank.memory.grow(request)
    if rank.config.dialect.stores_when_scheduled:
        rank.memory.store(request, request.computed)
    if last:
        launched = rank.last_batch if rank.prefill is None else rank.prefill.computing
        launched.append(request)
    return Piece(request, size, request.computed, last)


def _candidate(rank: Rank, taken: int) -> Request | None:
    """Return the request being chunked, or admit the one that has waited longest and has no prefetch."""
    if rank.chunked is not None:
        return rank.chunked if taken == 0 else None
    if not rank.waiting or len(rank.running) + taken >= rank.config.max_running:
        return None
    request = next(filter(rank.memory.ready, rank.waiting), None)
    if request is None or not (request.holds_kv or _admit(rank, request)):
        return None
    rank.waiting.remove(request)
    return request


def _admit(rank: Rank, request: Request) -> bool:
    if not rank.memory.admit(request, rank.new_token_ratio):
        return False
    count_hit(rank, request)
    return True


def count_hit(rank: Rank, request: Request) -> None:
    """Count what a request found in the cache when it was first admitted."""
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
