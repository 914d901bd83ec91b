"""Control messages: submit, abort, pause, continue, flush. They take effect between two iterations.

The rules are SGLang 0.5.23's, from which vLLM's pause, sleep and reset are built too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from workers.engine.results import process

if TYPE_CHECKING:
    from workers.engine.rank import Rank
    from workers.engine.request import Request

PauseMode: TypeAlias = Literal["abort", "retract", "in_place"]


def submit(rank: Rank, request: Request) -> None:
    """Queue a request, on a prefill or decode worker at its side of the pair."""
    if rank.prefill is not None:
        rank.prefill.submit(rank, request)
    elif rank.decode is not None and (request.remote or rank.config.role == "decode"):
        rank.decode.prealloc.append(request)
    else:
        rank.queue(request)


def abort(rank: Rank, request: Request) -> None:
    """End a request: at once if it waits, else when the next batch is made. A finished one is left alone."""
    if request.finish is not None or request.aborted:
        return
    request.aborted = True
    if _unqueue(rank, request):
        rank.end(request, "abort")


def _unqueue(rank: Rank, request: Request) -> bool:
    """Take a request out of the queue it waits in; return whether it did."""
    if request in rank.waiting:
        rank.waiting.remove(request)
        return True
    sides = (rank.prefill, rank.decode)
    return any(side is not None and side.forget(request) for side in sides)


def fail(rank: Rank, request: Request, why: str) -> None:
    """Abort a request because the other side of its pair has failed."""
    if request.finish is None:
        request.error = request.error or why
        abort(rank, request)


def arrive(rank: Rank, request: Request, cached_tokens: int | None) -> None:
    """Note that a request's KV has come from the prefill worker, which had so much of it cached."""
    if rank.decode is not None:
        rank.decode.arrived.append(request)
        request.cached_tokens = cached_tokens if cached_tokens is not None else request.cached_tokens


def fetched(rank: Rank, request: Request) -> None:
    """Give back the KV that was kept for a decode worker: it has it now, or will never ask."""
    if request in rank.kept:
        rank.kept.remove(request)
        rank.memory.release(request)


def abort_all(rank: Rank) -> int:
    """Abort every request and return how many there were."""
    requests = rank.requests()
    for request in requests:
        abort(rank, request)
    return len(requests)


def find(rank: Rank, rid: str) -> list[Request]:
    """Return the live requests whose id starts with `rid`, as SGLang matches them."""
    return [request for request in rank.requests() if request.rid.startswith(rid)]


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
        retract(rank, now)
        rank.publish(now)


def retract(rank: Rank, now: float) -> None:
    """Put every started request back without KV; what the tree holds stays.

    The result that an overlapping loop has not looked at yet is processed first. Requests go to the head
    of the queue.
    """
    while rank.launched:
        process(rank, rank.launched.popleft().step, now)
    started = rank.started()
    rank.running, rank.last_batch, rank.chunked = [], [], None
    for request in reversed(started):
        rank.give_back(request, first=True)


def resume(rank: Rank) -> None:
    """Let the scheduler go on."""
    rank.paused = False


def flush(rank: Rank) -> bool:
    """Empty every tier and queue AllBlocksCleared if no request holds KV; it does not publish."""
    if not rank.idle(ignore_waiting=rank.paused):
        return False
    rank.clear()
    return True


def held(rank: Rank) -> int:
    """Return how many requests the rank knows, in any state."""
    return len(rank.requests())
