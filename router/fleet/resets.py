"""Emptying a worker's views for what no event has told, and what their streams skip of what is older."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.observe.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.core.rank import Rank
    from router.fleet.worker import Worker
    from router.streams.stream import Stream

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Weights:
    """The version of a worker's weights ("": unknown), and how often its caches had been cleared by then."""

    version: str
    clears: int
    seen: list[int]


def reset(rank: Rank, cause: str) -> None:
    """Forget what a rank holds."""
    said = fields("view_reset", worker=rank.worker, rank=rank.rank, cause=cause)
    _log.info("worker %s rank %d: view reset (%s)", rank.worker, rank.rank, cause, extra=said)
    rank.view.reset(cause)


def reset_views(worker: Worker, cause: str, *, until_word: bool = False) -> None:
    """Forget what every rank holds, for a reason that no event has told.

    `until_word`: an event may still tell, or tell otherwise (see Cursor.forget).
    """
    for rank in worker.ranks:
        _forget(worker, rank, cause, until_word=until_word)


def clears_seen(worker: Worker) -> list[int]:
    """Return how many AllBlocksCleared each rank's stream has brought."""
    return _seen(worker, lambda stream: stream.counts.clears)


def restarts_seen(worker: Worker) -> list[int]:
    """Return how many restarts each rank's stream has noticed by itself."""
    return _seen(worker, lambda stream: stream.cursor.restarts)


def cuts_seen(worker: Worker) -> list[int]:
    """Return how often each rank's stream has lost its connection."""
    return _seen(worker, lambda stream: stream.counts.cuts)


def _seen(worker: Worker, count: Callable[[Stream], int]) -> list[int]:
    return [0 if stream is None else count(stream) for stream in worker.streams]


def cleared(worker: Worker, cause: str, seen: Sequence[int]) -> None:
    """Take note that a control call has emptied the caches; `seen` is `clears_seen` from before it.

    A rank whose own AllBlocksCleared has come meanwhile is empty already, and holds what came after.
    """
    worker.clears += 1
    for rank, before, now in zip(worker.ranks, seen, clears_seen(worker), strict=False):
        if now <= before:
            _forget(worker, rank, cause, until_clear=True)


def weights_now(worker: Worker, version: str) -> Weights:
    """Return what is to be compared with the next answer."""
    return Weights(version, worker.clears, clears_seen(worker))


def weights_changed(worker: Worker, before: Weights, *, paused: bool) -> None:
    """Empty the views of ranks of which nothing has told that the cache went with the old weights.

    Engines as released publish nothing while paused, and may keep the cache. A clear that has come since
    `before` can be the late one of an earlier update: what a paused rank is said to hold came after that
    clear and before this pause.
    """
    for rank, then, now in zip(worker.ranks, before.seen, clears_seen(worker), strict=False):
        told = now != then or worker.clears != before.clears
        if not told or (paused and any(rank.view.blocks().values())):
            _forget(worker, rank, "weights_changed", until_word=True)


def _forget(
    worker: Worker, rank: Rank, cause: str, *, until_clear: bool = False, until_word: bool = False
) -> None:
    reset(rank, cause)
    stream = worker.stream(rank.rank)
    if stream is not None:
        stream.forget(until_clear=until_clear, until_word=until_word)
