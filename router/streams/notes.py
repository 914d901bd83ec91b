"""What is said of one stream: to the log, sparingly, and as the likely cause of what is wrong with it."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING

from router.core.bucket import Bucket
from router.core.steps import State
from router.observe.logs import fields

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger(__name__)
# Lines at once, and each second: a publisher that does not stop must not fill the log.
_LINES, _A_SECOND = 20, 0.2
# Of batches that cannot be used each so many is a line.
_EACH = 1000
# A stream that restarts so often within so many seconds is no process that restarts.
_RESTARTS, _SECONDS = 3, 10.0


class Notes:
    """`name` is for people, and `labels` say the same in JSON. `unused`: why the last batch was not used."""

    def __init__(self, name: str, labels: Mapping[str, object]) -> None:
        self.name = name
        self.unused = self.topic = ""
        self._labels = labels
        self._bucket, self._states = Bucket(_A_SECOND, _LINES), Bucket(_A_SECOND, _LINES)
        self._untold, self._cause = 0, ""
        self._restarts: deque[float] = deque(maxlen=_RESTARTS)

    @property
    def hint(self) -> str:
        """The likely cause of what is wrong, "" when there is nothing to say."""
        unused = f"the last batch was not used: {self.unused}" if self.unused else ""
        mixed = "its numbers go back again and again: do two publishers use this address?"
        return "; ".join(filter(None, (unused, self.topic, mixed if self._is_mixed() else "")))

    def batch_unused(self, why: str, before: int) -> None:
        """A batch could not be used, as `before` others."""
        self.unused = why
        if before % _EACH == 0:
            _log.warning("%s: a batch was not used: %s", self.name, why)

    def topic_differs(self, topic: str, subscribed: str) -> None:
        """The engine's topic, as its replay tells, is another one."""
        self.topic = f"the engine's topic is {topic!r:.100}, subscribed is {subscribed!r:.100}"

    def was_reset(self, cause: str) -> None:
        """The view is emptied."""
        if cause == "restart":
            self._restarts.append(time.monotonic())
        self._untold, self._cause = self._untold + 1, cause
        self.catch_up()

    def catch_up(self) -> None:
        """Tell of the last reset, if that is still to be told and there is room, and how many had none."""
        if not self._untold or self._bucket.take(1, time.monotonic()):
            return
        left_out, self._untold = self._untold - 1, 0
        more = f"; {left_out} lines about it were left out" if left_out else ""
        said = fields("view_reset", **self._labels, cause=self._cause, left_out=left_out)
        _log.info("%s: view reset (%s)%s", self.name, self._cause, more, extra=said)

    def became(self, state: State, why: str) -> bool:
        """The stream's state is another one; say whether there was room for the line."""
        if self._states.take(1, time.monotonic()):
            return False
        level = logging.WARNING if state in {State.DEGRADED, State.SILENT} else logging.INFO
        said = fields("view_state", **self._labels, state=str(state), why=why)
        _log.log(level, "%s: view %s%s", self.name, state, f" ({why})" if why else "", extra=said)
        return True

    def failed(self) -> None:
        """A batch could not be applied; called where the exception is handled."""
        _log.exception("%s: a batch could not be applied", self.name)

    def _is_mixed(self) -> bool:
        times = self._restarts
        return len(times) == _RESTARTS and time.monotonic() - times[0] < _SECONDS
