"""What a metric is: a row of the table, and how its values are read at the moment of a scrape.

Names begin with `kv_router_` and end in their unit where they have one of Prometheus's. Labels have few
values: workers, ranks, models, and names that are the router's or the engines' own. Of a state only the
present one is there, with value 1. A `read` yields values by the values of the labels, in the labels' order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from router.observe.histogram import Histogram
from router.observe.process import process_values

if TYPE_CHECKING:
    from router.observe.metrics import Metrics, ModelCounts
    from router.observe.rows import RankRow, WorkerRow

PREFIX = "kv_router_"
NONE: tuple[str, ...] = ()
MODEL = ("model",)
WORKER = ("worker",)
RANK = ("worker", "rank")

Kind = Literal["counter", "gauge", "histogram"]
Merge = Literal["sum", "max", "min"]
Values = Iterable[tuple[tuple[str, ...], float | Histogram]]


class Scrape:
    """Everything there is to read at one moment; `ranks` by the values of their labels."""

    __slots__ = ("counts", "process", "ranks", "workers")

    def __init__(self, counts: Metrics, workers: Iterable[WorkerRow]) -> None:
        self.counts = counts
        self.process = process_values()
        self.workers = list(workers)
        self.ranks: list[tuple[tuple[str, str], RankRow]] = [
            ((worker.url, str(row.rank)), row) for worker in self.workers for row in worker.ranks
        ]


Read = Callable[[Scrape], Values]


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric. `name` is without the prefix and without `_total`.

    `merge`: what one scrape of several processes of a router says of values with the same labels. Counts of
    what each process does itself add up; of what each of them sees for itself (a state, a rank's view and
    its stream) the largest is shown. `prefix` differs only where a name is Prometheus's own.
    """

    kind: Kind
    name: str
    unit: str
    labels: tuple[str, ...]
    help: str
    read: Read
    merge: Merge = "sum"
    prefix: str = PREFIX

    @property
    def family(self) -> str:
        """The name without `_total`."""
        return self.prefix + self.name

    @property
    def full_name(self) -> str:
        """The name that a query uses."""
        return self.family + ("_total" if self.kind == "counter" else "")


def one(value: Callable[[Metrics], float | Histogram]) -> Read:
    """Read one value of the process."""
    return lambda now: [((), value(now.counts))]


def each(values: Callable[[Metrics], Iterable[tuple[str, float | Histogram]]]) -> Read:
    """Read the process's values by one label."""
    return lambda now: (((key,), value) for key, value in values(now.counts))


def by_model(value: Callable[[ModelCounts], float | Histogram]) -> Read:
    """Read a value of every model's counts."""
    return lambda now: (((model,), value(counts)) for model, counts in now.counts.models.items())


def by_worker(value: Callable[[WorkerRow], float]) -> Read:
    """Read a value of every worker."""
    return lambda now: (((row.url,), value(row)) for row in now.workers)


def by_rank(value: Callable[[RankRow], float | None]) -> Read:
    """Read a value of every rank that has one."""
    return lambda now: ((at, number) for at, row in now.ranks if (number := value(row)) is not None)


def by_rank_and(values: Callable[[RankRow], Mapping[str, float]]) -> Read:
    """Read every rank's values by one more label."""
    return lambda now: (((*at, key), number) for at, row in now.ranks for key, number in values(row).items())


def of_process(name: str) -> Read:
    """Read what the system says of the process, where it does."""
    return lambda now: [((), now.process[name])] if name in now.process else []
