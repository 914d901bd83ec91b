"""What becomes of spans that are sent: said when that begins to fail, and when it works again.

Everything here is called by the thread of the SDK's that sends them. The exporter's own lines, one for each
try, with the URL and whatever else a library puts into a message, are not shown.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from router.core.bucket import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

_SAY_SECONDS = 60.0
_STATUS = re.compile(r" code: ([0-9]{3}),")  # of an exporter's line
_log = logging.getLogger(__name__)


class Sending(SpanExporter):
    """Sends by another exporter. `failing`: the last try failed; `lost` counts spans. `clock` is in seconds.

    A line when it begins to fail, once a minute at most, and one when it works again after that.
    """

    def __init__(self, exporter: SpanExporter, clock: Callable[[], float]) -> None:
        self.failing = False
        self._exporter = exporter
        self._clock = clock
        self._lines = Bucket(1 / _SAY_SECONDS, 1)
        self._told = False
        self._status = ""
        self.lost = 0
        self._lines_of_exporter = logging.getLogger(type(exporter).__module__)
        self._lines_of_exporter.addFilter(self._hear)

    def _hear(self, line: logging.LogRecord) -> bool:
        """Keep from a line the collector's status, and the line from the log."""
        found = _STATUS.search(line.getMessage())
        self._status = f": it answers {found[1]}" if found else ""
        return False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; what is not taken is lost."""
        self._status = ""
        try:
            result = self._exporter.export(spans)
        except Exception:  # noqa: BLE001 - whatever it is, the next ones may be sent
            result = SpanExportResult.FAILURE
        self.failing = result is not SpanExportResult.SUCCESS
        if self.failing:
            self._failed(len(spans))
        elif self._told:
            _log.info("spans are sent again; %d have been lost so far", self.lost)
            self._told = False
        return result

    def shutdown(self) -> None:
        """End the wait for the next try."""
        self._exporter.shutdown()
        self._lines_of_exporter.removeFilter(self._hear)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is held here."""
        return self._exporter.force_flush(timeout_millis)

    def _failed(self, count: int) -> None:
        self.lost += count
        if not self._told and not self._lines.take(1, self._clock()):
            self._told = True
            what = "spans cannot be sent: the collector does not take them%s; %d have been lost so far"
            _log.warning(what, self._status, self.lost)
