"""Ejecting the worker that fails far more often than those it can be compared with: same model, same role."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.outliers import outlier
from router.fleet.worker import WorkerState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.fleet.worker import Worker


def eject_outliers(workers: Iterable[Worker], ratio: float) -> None:
    """Open the breaker of the worst of each group, if it stands out; called once a second."""
    groups: dict[tuple[str, str], list[Worker]] = {}
    for worker in workers:
        said = worker.description
        if said is not None and worker.state is WorkerState.READY:
            groups.setdefault((said.model, said.role), []).append(worker)
    for group in groups.values():
        found = outlier([worker.health.breaker for worker in group], ratio)
        for worker in group:
            if worker.health.breaker is found:
                worker.health.eject()
