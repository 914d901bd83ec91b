"""What Prometheus sees: the table of metrics, read from the process's counts and a row for each worker.

A scrape of a large fleet takes some tens of milliseconds; it is cut into turns of the event loop of about one
each, and requests are served in between. So the figures of one scrape are not all of one moment, but those of
one worker are. A worker or rank that is gone is gone from the next scrape: nothing is kept between two but
the texts of labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from router.observe.accept import wants_openmetrics
from router.observe.definition import Definition, Scrape, Values
from router.observe.figures import Figures, figure, values
from router.observe.rendering import OPENMETRICS, TEXT, Written, head, samples
from router.observe.rows import WorkerRow
from router.observe.table import METRICS

if TYPE_CHECKING:
    from router.observe.metrics import Metrics

T = TypeVar("T")
Rows = Callable[[], Iterable[WorkerRow]]

TURN_SECONDS = 0.001
# Figures made before the clock is looked at.
_FIGURES = 64


class Exposition:
    """Renders what there is to see now; `rows` is called for each scrape, its rows are taken one by one."""

    def __init__(self, counts: Metrics, rows: Rows) -> None:
        self._counts = counts
        self._rows = rows
        self._written, self._lines = Written(), 0

    async def rows(self) -> list[WorkerRow]:
        """Return all rows; the loop is held as by `render`."""
        return await _Turn().all(iter(self._rows()), 1)

    async def figures(self) -> Figures:
        """Return what there is to see in this process; the loop is held as by `render`."""
        turn = _Turn()
        scrape = await self._scrape(turn)
        return {
            definition.full_name: await turn.all(map(figure, _values(definition, scrape)), _FIGURES)
            for definition in METRICS
        }

    async def render(self, accept: str = "", together: Figures | None = None) -> tuple[bytes, str]:
        """Return body and content type in the format that an Accept header asks for.

        `together` are the figures of all processes, where there are several. About 1 ms, and 60 us a rank,
        of which the loop is held for little more than 1 ms at a time.
        """
        turn = _Turn()
        scrape = None if together is not None else await self._scrape(turn)
        openmetrics = wants_openmetrics(accept)
        families: list[bytes] = []
        self._written.begin(self._lines)
        for definition in METRICS:
            if scrape is None:
                found = values((together or {}).get(definition.full_name, ()))
            else:
                found = _values(definition, scrape)
            lines = await turn.all(samples(definition, found, self._written), 1)
            text = head(definition, openmetrics=openmetrics) + "".join(lines)
            families.append(text.encode(errors="replace"))
        families.append(b"# EOF\n" if openmetrics else b"")
        await turn.ends()
        body = b"".join(families)
        self._lines = body.count(b"\n")
        return body, OPENMETRICS if openmetrics else TEXT

    async def _scrape(self, turn: _Turn) -> Scrape:
        rows = await turn.all(iter(self._rows()), 1)
        await turn.ends()
        return Scrape(self._counts, rows)


class _Turn:
    """A turn of the event loop, and after it the next."""

    def __init__(self) -> None:
        self._until = perf_counter() + TURN_SECONDS

    async def all(self, items: Iterator[T], often: int) -> list[T]:
        """Return what an iterator yields; others have their turn when this one is over."""
        found: list[T] = []
        while some := list(islice(items, often)):
            found += some
            if perf_counter() > self._until:
                await self.ends()
        return found

    async def ends(self) -> None:
        """Let others have their turn."""
        await asyncio.sleep(0)
        self._until = perf_counter() + TURN_SECONDS


def _values(definition: Definition, scrape: Scrape) -> Values:
    """Return the values to show: of counts that go on changing at once, of rows one by one."""
    values = definition.read(scrape)
    return values if "worker" in definition.labels else list(values)
