"""SGLang's load socket: a rank's word on its load, as it comes.

Nothing is lost when a message is: the next one says all again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.engines.loads import load_stat
from router.streams.reader import Frames, Reader
from router.streams.sockets import listener

if TYPE_CHECKING:
    from collections.abc import Callable

    import zmq

    from router.core.word import EngineLoad
    from router.engines.description import EventSource
    from router.streams.turns import Turns

_PARTS = 3


class LoadSocket:
    """Calls `on_load` with a rank and its load for each LoadStat, until closed. About 6 us each."""

    def __init__(
        self,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        source: EventSource,
        on_load: Callable[[int, EngineLoad], None],
        *,
        turns: Turns,
    ) -> None:
        """Raises zmq.ZMQError for an address that cannot be used."""
        self.source = source
        self._on_load = on_load
        self._reader = Reader(
            listener(zmq_context, source.endpoint, source.topic), self._on_frames, turns=turns
        )

    def _on_frames(self, frames: Frames) -> None:
        said = load_stat(frames[2]) if len(frames) == _PARTS else None
        if said is not None:
            self._on_load(*said)

    def close(self) -> None:
        """Stop listening; idempotent."""
        self._reader.close()
