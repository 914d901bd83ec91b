"""What all processes of a router see, told by whichever is asked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from router.errors import RouterError
from router.observe.figures import Figures
from router.observe.rows import WorkerRow, workers_json
from router.observe.together import merged_rows
from router.share.line import SHOW_SECONDS, Line
from router.share.parent import ask

if TYPE_CHECKING:
    from router.observe.exposition import Exposition
    from router.observe.sight import Share

_FIGURES = msgspec.msgpack.Decoder(Figures)
_ROWS = msgspec.msgpack.Decoder(dict[int, list[WorkerRow]])
_log = logging.getLogger(__name__)


class TeamSight:
    """A `Sight` of several processes; of those that do not answer in time, what is known of them."""

    def __init__(self, line: Line, index: int, exposition: Exposition, share: Share) -> None:
        self._line = line
        self._index = index
        self._exposition = exposition
        self._share = share

    async def own(self, what: str) -> Figures | list[WorkerRow]:
        """Return what this process has to show of one kind."""
        return await (self._exposition.figures() if what == "figures" else self._exposition.rows())

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """See `Sight`."""
        own = await self._exposition.figures()
        try:
            together = _FIGURES.decode(await ask(self._line, "figures", own, SHOW_SECONDS))
        except RouterError:
            together = own
        return await self._exposition.render(accept, together)

    async def workers(self) -> bytes:
        """See `Sight`."""
        return workers_json(await self.rows(), self._share())

    async def rows(self) -> list[WorkerRow]:
        """See `Sight`."""
        rows = {self._index: await self._exposition.rows()}
        try:
            rows |= _ROWS.decode(await ask(self._line, "rows", None, SHOW_SECONDS))
        except RouterError:
            _log.warning("the workers are shown as one process sees them: the others could not be asked")
        return merged_rows([rows[index] for index in sorted(rows)])
