"""Control messages: submit, abort, pause, continue, flush. They take effect between two iterations.

The rules are SGLang 0.5.23's, from which vLLM's pause, sleep and reset are built too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from workers.engine.rank import Rank
    from workers.engine.request import Request

PauseMode: TypeAlias = Literal["abort", "retract", "in_place"]


def submit(rank: Rank, request: Request) -> None:
    """Queue a request."""
    rank.waiting.append(request)


def abort(rank: Rank, request: Request) -> None:
    """End a request: at once if it waits, else when the next batch is made. A finished one is left alone."""
    if request.finish is not None or request.aborted:
        return
    request.aborted = True
    if request in rank.waiting:
        rank.waiting.remove(request)
        rank.end(request, "abort")


def abort_all(rank: Rank) -> int:
    """Abort every request and return how many there were."""
    requests = [*rank.waiting, *rank.running, *rank.last_batch]
    requests += [rank.chunked] if rank.chunked is not None else []
    for request in requests:
        abort(rank, request)
    return len(requests)


def find(rank: Rank, rid: str) -> list[Request]:
    """Return the live requests whose id starts with `rid`, as SGLang matches them."""
    live = [*rank.waiting, *rank.running, *rank.last_batch]
    live += [rank.chunked] if rank.chunked is not None else []
    return [request for request in live if request.rid.startswith(rid)]


def pause(rank: Rank, mode: PauseMode, now: float) -> None:
    """Pause in one of three modes.

    `abort` ends all requests and stops nothing, `in_place` freezes everything, `retract` gives running
    requests' own KV back, requeues them, keeps the tree and publishes once.
    """
    if mode == "abort":
        abort_all(rank)
        return
    rank.paused = True
    if mode == "retract":
        retract(rank)
        rank.publish(now)


def retract(rank: Rank) -> None:
    """Put every started request back to the head of the queue without KV; what the tree holds stays."""
    started = [*rank.running, *rank.last_batch]
    started += [rank.chunked] if rank.chunked is not None else []
    for request in reversed(started):
        rank.release(request)
        rank.waiting.appendleft(request)
    rank.running, rank.last_batch, rank.chunked = [], [], None


def resume(rank: Rank) -> None:
    """Let the scheduler go on."""
    rank.paused = False


def flush(rank: Rank) -> bool:
    """Empty the cache and queue AllBlocksCleared if no request holds KV; it does not publish."""
    if not rank.idle(ignore_waiting=rank.paused):
        return False
    rank.cache.reset()
    return True


def held(rank: Rank) -> int:
    """Return how many requests the rank knows, in any state."""
    return len(rank.waiting) + len(rank.running) + len(rank.last_batch) + (rank.chunked is not None)
