"""What a scrape of a large fleet takes of the event loop, piece by piece.

Workers have all that live ones have: two tiers of blocks, events of every kind, resets, gaps, skipped events,
failures. A scrape is stepped by hand: a piece is what it does in one turn of the event loop, so that the
longest is what anybody else has to wait for it. `rows`: the snapshot alone. CPU time of the one thread, in
ms; of several scrapes the median, and the longest piece of all.
"""

from __future__ import annotations

from statistics import median
from time import thread_time
from typing import TYPE_CHECKING

import uvloop

from router.collector import spare_the_collector
from router.core.events import Batch, Cleared, Removed, Stored
from router.engines.description import Description, EventSource
from router.fleet.fleet import Fleet
from router.fleet.limits import ViewLimits
from router.fleet.snapshot import each_row, snapshot
from router.fleet.spec import parse_worker
from router.observe.exposition import Exposition
from router.observe.metrics import Metrics
from router.observe.rendering import OPENMETRICS
from router.proxy.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.fleet.worker import Worker

SHAPES = ((1, 1), (8, 8), (500, 1), (125, 4), (8, 64))
ROUNDS = 7
FORMATS = (("text", ""), ("openmetrics", OPENMETRICS))


def main() -> None:
    """Print the table."""
    print(f"{'workers':>8} {'ranks':>6} {'format':>12} {'lines':>7} {'KiB':>6} {'rows':>7}", end=" ")
    print(f"{'total':>7} {'pieces':>7} {'mean':>6} {'longest':>8}")
    for workers, dp in SHAPES:
        spare_the_collector()
        uvloop.run(measure(workers, dp))


async def measure(workers: int, dp: int) -> None:
    """Print the lines of one fleet."""
    fleet = Fleet(
        [parse_worker(f"http://10.0.{number // 250}.{number % 250}:30000") for number in range(workers)],
        upstream_limits=Limits(),
        view_limits=ViewLimits(
            predicted_ttl=1, approximate_ttl=1, predicted_bound=1000, replay_seconds=1, index_bound=1 << 16
        ),
        probe_seconds=1,
        prepare=_nothing,
    )
    for worker in fleet.workers.values():
        live(worker, dp)
    exposition = Exposition(counted(), lambda: each_row(fleet.workers.values()))
    for name, accept in FORMATS:
        rounds = [stepped(exposition, accept) for _ in range(ROUNDS)]
        pieces = sorted(rounds, key=sum)[ROUNDS // 2]
        body = (await exposition.render(accept))[0]
        rows = median(timed(lambda: snapshot(fleet.workers.values())) for _ in range(ROUNDS))
        lines = body.count(b"\n")
        print(f"{workers:>8} {workers * dp:>6} {name:>12} {lines:>7}", end=" ")
        print(f"{len(body) / 1024:>6.0f} {rows:>7.2f} {sum(pieces):>7.2f} {len(pieces):>7}", end=" ")
        print(f"{sum(pieces) / len(pieces):>6.2f} {max(map(max, rounds)):>8.2f}")
    await fleet.close()


def live(worker: Worker, dp: int) -> None:
    """Make of a worker one that has been served from for a while."""
    # Bound to a free port, where nobody comes: there is nothing to connect to.
    source = EventSource("tcp://127.0.0.1:*", None, "", bind=True)
    worker.adopt(
        Description("sglang", "model", (), {}, 16, dp, (source,) * dp, "", False, "both", None, "1", "0.5.23")
    )
    worker.health.breaker.failures["status"] += 3
    worker.health.breaker.changes["open", "share"] += 1
    for rank, stream in zip(worker.ranks, worker.streams, strict=True):
        view = rank.view
        view.apply(Batch(1.0, [stored(1, "GPU"), Cleared(), stored(1, "GPU"), stored(2, "CPU_PINNED")], 1))
        view.apply(Batch(1.0, [Removed([1], "GPU", 0)], 0))
        view.events["skipped_group"] += 1
        if stream is not None:
            stream.counts.lag.add(0.002, 1.0)


def stored(block: int, tier: str) -> Stored:
    """Return the store of one block."""
    return Stored([block], None, bytes(64), 16, False, tier, None, None, None, 0, None)


def counted() -> Metrics:
    """Return the counts of a router that has served two models."""
    metrics = Metrics()
    for model in ("model", "other model"):
        for route in ("/v1/completions", "/v1/chat/completions"):
            for status in (200, 404, 429, 503):
                metrics.answered(route, status, 0.1, model)
    return metrics


def stepped(exposition: Exposition, accept: str) -> list[float]:
    """Render once, and return the time of every piece in ms."""
    pieces: list[float] = []
    work = exposition.render(accept)
    while True:
        began = thread_time()
        try:
            work.send(None)
        except StopIteration:
            return [*pieces, (thread_time() - began) * 1e3]
        pieces.append((thread_time() - began) * 1e3)


def timed(work: Callable[[], object]) -> float:
    """Return the time of one call, in ms."""
    began = thread_time()
    work()
    return (thread_time() - began) * 1e3


async def _nothing(*_: object) -> None:
    return
