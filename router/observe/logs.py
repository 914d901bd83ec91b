"""What the router says on stderr: one line for every change of state, and for requests only when asked to.

A message is one line whatever a worker put into it: line breaks and control characters are escaped, so that
nothing from outside can forge a line. Only a traceback takes more. What an exception says of itself is left
out of it: it may be a piece of a prompt.
"""

from __future__ import annotations

import json
import logging
import logging.config
import time
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from router.printable import printable, printable_json

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

_log = logging.getLogger(__name__)


def fields(event: str, **said: object) -> dict[str, dict[str, object]]:
    """Return the `extra` of a line that tells of an event, by its name and what else there is to say.

    People read it in the message; in JSON each has a key of its own.
    """
    return {"fields": {"event": event, **said}}


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO message`, in UTC; `mark` stands before the message."""

    converter = staticmethod(time.gmtime)

    def __init__(self, mark: str = "") -> None:
        form = f"%(asctime)s.%(msecs)03dZ %(levelname)s {mark}%(message)s"
        super().__init__(form, "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, and its traceback if it has one."""
        record.msg, record.args = printable(record.getMessage()), ()
        return super().format(record)

    def formatException(  # noqa: N802 - the name is logging's
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        """See `_traceback`."""
        return _traceback(ei[1])


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, message, what `fields` says of an event, and a traceback if any.

    `mark`, if it is of one of several processes, becomes its number in `process`.
    """

    def __init__(self, mark: str = "") -> None:
        super().__init__()
        self._process = mark.strip("[] ") or None

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON; ASCII, so that nothing in it can end the line or the string."""
        at = datetime.fromtimestamp(record.created, UTC)
        said: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": self._process,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info is not None:
            said["traceback"] = _traceback(record.exc_info[1])
        shown = {name: value for name, value in said.items() if value is not None}
        return printable_json(json.dumps(shown, default=str))


def _traceback(error: BaseException | None) -> str:
    """Return where an exception was raised, and its type; the same of those that led to it."""
    lines: list[str] = []
    while error is not None:
        lines += ["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__)]
        lines.append(f"{type(error).__name__}\n")
        error = error.__cause__ or error.__context__
    return "".join(lines).rstrip()


_FORMATTERS = {"human": LineFormatter, "json": JsonFormatter}


def log_lost_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what the event loop has caught; asyncio's own way would show what the exception says."""
    error = context.get("exception")
    _log.error("%s", context["message"], exc_info=error if isinstance(error, Exception) else None)


def configure(level: str, mark: str = "", form: str = "human") -> None:
    """Send the process's logs to stderr, which nobody waits for.

    `level` is for the router's own, `mark` says whose lines they are, `form` is human or json. Of libraries
    only warnings are shown, and of uvicorn no access log; start it with `log_config=None`.
    """
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"()": _FORMATTERS[form], "mark": mark}},
            "handlers": {"stderr": {"class": "router.observe.outlet.Outlet", "formatter": "line"}},
            "root": {"level": "WARNING", "handlers": ["stderr"]},
            "loggers": {
                "router": {"level": level.upper()},
                "uvicorn": {"level": "WARNING"},
                "opentelemetry": {"level": "ERROR"},  # of each try to send spans it warns
                "uvicorn.access": {"level": "CRITICAL", "propagate": False},
            },
        }
    )


def set_level(level: str) -> None:
    """Change the level of the router's own logs."""
    logging.getLogger("router").setLevel(level.upper())
