"""Who witnesses what the router does: a record, a request log, spans; none of them unless asked for."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from router.derived import weights_of
from router.errors import ConfigError
from router.fleet.fleet import SWEEP_PORTION
from router.fleet.parts import Parts
from router.observe.requests import RequestLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.config import Config
    from router.fleet.fleet import Fleet
    from router.observe.spans import Spans
    from router.observe.story import Observer
    from router.records.recorder import Recorder

_TRACES = "/v1/traces"
_NUMBERS = (
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_BSP_EXPORT_TIMEOUT",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
)
_log = logging.getLogger(__name__)


class Witness:
    """Raises ConfigError, one line, for a record that cannot be kept, or spans that cannot be sent.

    `process`: the number of this one where there are several. `parts` is what a fleet that is recorded is
    made of; `random` is for what is decided at random.
    """

    def __init__(self, config: Config, process: int | None = None) -> None:
        self.recorder = _recorder(config, process) if config.record is not None else None
        self._spans = _spans(config, os.environ)
        self.parts = Parts() if self.recorder is None else self.recorder.parts
        self.random = Random() if self.recorder is None else self.recorder.random
        self._log_requests = config.log_requests

    def observers(self) -> tuple[Observer, ...]:
        """Return who is told of each request."""
        found: list[Observer] = []
        if self.recorder is not None:
            found.append(self.recorder.observe)
        if self._spans is not None:
            found.append(self._spans.observe)
        return (*found, *self.request_log())

    def request_log(self) -> tuple[Observer, ...]:
        """Return who writes lines of requests, if lines are wanted: also of those that others carry."""
        return (RequestLog(self._log_requests, Random()).observe,) if self._log_requests else ()

    def spans_lost(self) -> int:
        """Return how many spans nobody has taken."""
        return 0 if self._spans is None else self._spans.lost

    async def close(self, fleet: Fleet) -> None:
        """Let what there is to tell of a fleet, still whole, be written and sent."""
        if self.recorder is not None:
            self.recorder.views(fleet.workers.values(), last=True)
            await asyncio.to_thread(self.recorder.close)
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)


def _spans(config: Config, environ: Mapping[str, str]) -> Spans | None:
    """Return what sends spans, where the operator or the standard variables say where to."""
    if config.otlp is None and not _asks_for_spans(environ):
        return None
    try:
        return _made(config, environ)
    except ImportError:
        if config.otlp is not None:
            raise ConfigError("--otlp: the extra is not installed: pip install 'kv-router[otel]'") from None
        _log.warning("no spans are sent: OTEL_* asks for them, and kv-router[otel] is not installed")
        return None
    except ValueError as error:  # also of the import, which reads some of them
        raise ConfigError(f"the variables OTEL_* do not fit: {error}") from None


def _made(config: Config, environ: Mapping[str, str]) -> Spans:
    from router.observe.spans import Spans  # noqa: PLC0415 - an extra, and few trace

    _check_numbers(environ)
    return Spans(None if config.otlp is None else _traces_url(config.otlp))


def _check_numbers(environ: Mapping[str, str]) -> None:
    """Raise ConfigError for what the SDK would only complain of, with a traceback."""
    for name in _NUMBERS:
        text = environ.get(name, "")
        if text and not (text.isascii() and text.isdigit() and int(text)):
            raise ConfigError(f"{name}: expected a whole number above 0, got {text!r:.80}")


def _asks_for_spans(environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return False
    return any(environ.get(f"OTEL_EXPORTER_OTLP_{name}") for name in ("ENDPOINT", "TRACES_ENDPOINT"))


def _traces_url(url: str) -> str:
    """Return where spans are posted to: below a collector's URL, or a URL that says it in full."""
    return url if url.endswith(_TRACES) else url.rstrip("/") + _TRACES


def _recorder(config: Config, process: int | None) -> Recorder:
    """Return what keeps the record; several processes have directories of their own in the one given."""
    from router.records.recorder import Recorder  # noqa: PLC0415 - few keep a record

    return Recorder(
        Path(config.record or "", "" if process is None else f"process-{process}"),
        config.record_max_bytes // config.processes,
        config.policy,
        weights_of(config),
        config.index_max_blocks,
        SWEEP_PORTION,
        shared=process is not None or config.share is not None,
    )
