"""The demo's words and tables on a terminal."""

from __future__ import annotations

import sys
from collections import Counter
from statistics import mean, quantiles
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.demo.sync import Report
    from workers.demo.traffic import Sample


def say(text: str = "") -> None:
    """Print a line at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Progress:
    """Counts answers: on a terminal in place, elsewhere a line for each quarter."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        self._live = sys.stdout.isatty()

    def __call__(self) -> None:
        """Count one more."""
        self._done += 1
        text = f"  {self._name:<12} {self._done:>4} of {self._total} requests answered"
        if self._live:
            sys.stdout.write("\r" + text + ("\n" if self._done == self._total else ""))
            sys.stdout.flush()
        elif self._done * 4 // self._total > (self._done - 1) * 4 // self._total:
            say(text)


def compare(runs: dict[str, list[Sample]], workers: Sequence[str]) -> None:
    """Print what each policy made of the same traffic."""
    say(f"  {'policy':<12} {'cached tokens':>13} {'mean TTFT':>10} {'p99 TTFT':>10}   requests per worker")
    for policy, samples in runs.items():
        share = sum(sample.cached for sample in samples) / sum(sample.prompt for sample in samples)
        times = [sample.ttft * 1e3 for sample in samples]
        counts = Counter(sample.worker for sample in samples)
        spread = " ".join(f"{counts[worker]:>4}" for worker in workers)
        p99 = quantiles(times, n=100)[98]
        say(f"  {policy:<12} {share:>13.1%} {mean(times):>7.0f} ms {p99:>7.0f} ms   {spread}")


def tell_sync(report: Report) -> None:
    """Print each worker's sync, and what the traffic saw of it."""
    for sync in report.syncs:
        say(
            f"  {sync.worker}: paused, {sync.blocks_before} blocks flushed; view empty "
            f"{sync.emptied_seconds * 1e3:.1f} ms later, still paused; continued"
        )
    say(
        f"  {len(report.samples)} requests meanwhile, none lost; "
        f"scored against a cleared block: {len(report.stale())}"
    )
