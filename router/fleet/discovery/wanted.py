"""A worker as a source wants it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.fleet.spec import WorkerSpec


@dataclass(frozen=True, slots=True)
class Wanted:
    """`process` tells one process behind a URL from another, such as a pod's uid; "" when nobody knows.

    `away` says why no new requests should be sent there for now, "" when they should. `addresses`: where
    the worker is, and the only ones that its events may come from; empty: wherever its settings say. `name`
    is what the source calls it, for the log.
    """

    spec: WorkerSpec
    process: str = ""
    away: str = ""
    addresses: tuple[str, ...] = ()
    name: str = ""

    def is_same(self, other: Wanted) -> bool:
        """Whether a worker that was taken in as the one is still right as the other."""
        unknown = not self.process or not other.process
        return self.spec == other.spec and (unknown or self.process == other.process)


def as_wanted(specs: Iterable[WorkerSpec]) -> list[Wanted]:
    """Return workers that are known by their settings alone."""
    return [Wanted(spec) for spec in specs]


Tell: TypeAlias = Callable[[Sequence[Wanted]], None]


class Source(Protocol):
    """One source of workers; `name` is for the log, and unlike that of any other."""

    name: str

    @property
    def failing(self) -> bool:
        """Whether it cannot be read now, so that its workers stay what they were."""

    async def run(self, tell: Tell) -> None:
        """Tell the whole set of workers whenever it has changed, until cancelled."""
