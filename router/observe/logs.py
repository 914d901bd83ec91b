"""What the router says on stderr: one line for every change of state, none for a request.

A message is one line whatever a worker put into it: line breaks and control characters are escaped, so that
nothing from outside can forge a line. Only a traceback takes more.
"""

from __future__ import annotations

import logging
import logging.config
import time


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO message`, in UTC."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, and its traceback if it has one."""
        record.msg, record.args = _escaped(record.getMessage()), ()
        return super().format(record)


def configure(level: str) -> None:
    """Send the process's logs to stderr; `level` is for the router's own.

    Of libraries only warnings are shown, and of uvicorn no access log; start it with `log_config=None`.
    """
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"()": LineFormatter}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            "root": {"level": "WARNING", "handlers": ["stderr"]},
            "loggers": {
                "router": {"level": level.upper()},
                "uvicorn": {"level": "WARNING"},
                "uvicorn.access": {"level": "CRITICAL", "propagate": False},
            },
        }
    )


def _escaped(message: str) -> str:
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in message)
