"""Keeping one worker's state true: ask who it is, then probe it until it fails, then ask again.

A worker that is not up yet is asked again with growing pauses and joins when it comes. A probe is one
`GET /health` and the engine's own word on whether it is paused. Who is slow to answer is taken out, unless
it is the last that could take its requests: an engine that has too much to do is slow to answer, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from router.engines.detect import ENGINES, describe
from router.errors import OutOfDescriptors, UpstreamFailed, UpstreamTimeout
from router.fleet.resets import Weights, reset_views, weights_changed, weights_now
from router.fleet.worker import Worker, WorkerState
from router.proxy.fetch import fetch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from router.engines.description import Description
    from router.fleet.allowed import Confined
    from router.proxy.upstream import Upstream

_OK = 200
_PROBE_TIMEOUT = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
# How often a worker is asked who it is while all is well: adapters come and go, and a process can be
# replaced between two probes.
_DESCRIBE_SECONDS = 10.0
# How long a view stays degraded before the engine's history is tried again.
_HEAL_SECONDS = 10.0
_log = logging.getLogger(__name__)


class Supervisor:
    """Runs until cancelled. Times in seconds."""

    def __init__(
        self,
        worker: Worker,
        *,
        probe_seconds: float,
        prepare: Callable[[Description, Upstream], Awaitable[None]],
        is_last: Callable[[Worker], bool],
        confined: Confined | None = None,
    ) -> None:
        self._worker = worker
        self._is_last = is_last
        self._prepare = prepare
        self._confined = confined
        self._clock = time.monotonic
        self._probe_seconds = probe_seconds
        self._look = asyncio.Event()
        self._due = 0.0
        worker.renew = self.renew
        worker.health.look = self._look.set
        # When last asked; and whether that was since the worker was asked who it is.
        self._weights: Weights | None = None
        self._asked_weights = False

    def renew(self) -> None:
        """Ask the worker again who it is: its stream has seen another process, or may have."""
        self._due = 0.0
        self._look.set()

    async def run(self) -> None:
        """Supervise the worker for as long as it is part of the fleet."""
        while True:
            try:
                await self._watch()
            except Exception as error:  # noqa: BLE001 - see below
                # Nothing that a worker answers may end its supervision.
                _log.exception("worker %s: it could not be looked after", self._worker.url)
                self._worker.become(WorkerState.FAILED, f"{type(error).__name__} in the router")
            await self._wait(self._probe_seconds)

    async def _watch(self) -> None:
        """Ask the worker who it is, then probe it until it fails or is to be asked again."""
        await self._join()
        self._due = self._clock() + _DESCRIBE_SECONDS
        self._asked_weights = False
        while await self._probe() and self._clock() < self._due:
            await self._wait(self._probe_seconds)
            for stream in self._worker.streams:
                if stream is not None and self._clock() - stream.cursor.since > _HEAL_SECONDS:
                    stream.heal()

    async def _join(self) -> None:
        """Ask the worker who it is, until it says."""
        worker = self._worker
        pause = _FIRST_PAUSE
        while True:
            try:
                description = await self._describe()
            except OutOfDescriptors:
                await self._wait(_FIRST_PAUSE)
            except UpstreamFailed as error:
                starting = worker.description is None
                if starting:
                    worker.become(WorkerState.STARTING, error.message)
                else:
                    self._missed(error)
                await self._wait(pause)
                # One that takes long to start is left alone; one that was up is missed.
                pause = min(2 * pause, _LONGEST_PAUSE if starting else self._probe_seconds)
            else:
                await self._prepare(description, worker.upstream)
                worker.adopt(description)
                if worker.state in {WorkerState.STARTING, WorkerState.FAILED}:
                    worker.health.rejoined()
                return

    async def _describe(self) -> Description:
        said = await describe(self._worker.side, self._worker.spec)
        return said if self._confined is None else await self._confined.description(said)

    async def _probe(self) -> bool:
        """Look at the worker once; say whether it is up."""
        worker = self._worker
        assert worker.description is not None  # noqa: S101 - it has joined
        engine = ENGINES[worker.description.engine]
        began = self._clock()
        try:
            health = await fetch(worker.side, "GET", "/health", timeout=_PROBE_TIMEOUT)
            paused = bool(await engine.is_paused(worker.side))
            if self._asks_weights(paused=paused, each_time=engine.PAUSE_MAY_CLEAR):
                self._saw_weights(await engine.weight_version(worker.side), paused=paused)
        except OutOfDescriptors:
            return True  # as far as is known
        except UpstreamFailed as error:
            return self._missed(error)
        if health.status != _OK:
            worker.become(WorkerState.FAILED, f"GET /health answers {health.status}")
            return False
        worker.health.probed(began)
        # A control call that ended meanwhile knows better than answers from before it.
        if worker.controlled_at < began:
            self._saw(paused=paused, may_clear=engine.PAUSE_MAY_CLEAR)
        return True

    def _missed(self, error: UpstreamFailed) -> bool:
        """Note that the worker does not answer; say whether it counts as up all the same."""
        worker = self._worker
        late = isinstance(error, UpstreamTimeout) and worker.state is WorkerState.READY
        if not late or not self._is_last(worker):
            worker.become(WorkerState.FAILED, error.message)
            return False
        why = f"{error.message}; it is the last worker that takes its requests"
        if why != worker.why:
            _log.warning("worker %s: %s", worker.url, why)
        worker.become(WorkerState.READY, why)
        return True

    def _saw(self, *, paused: bool, may_clear: bool) -> None:
        """Note the state of a worker that is up.

        A pause, or the end of one, that the router did not bring about can have emptied a vLLM's cache. The
        first event after its end tells; what comes before that was published before the pause.
        """
        worker = self._worker
        was_paused = worker.state is WorkerState.PAUSED
        if worker.state is WorkerState.DRAINING or (paused and was_paused):
            return
        if may_clear and paused is not was_paused:
            reset_views(worker, "paused", until_word=not paused)
        if paused:
            worker.become(WorkerState.PAUSED, "the engine says that it is paused")
        else:
            worker.become(WorkerState.READY)

    def _asks_weights(self, *, paused: bool, each_time: bool) -> bool:
        """Whether to ask for the weights: around a pause, once for each time that all is asked, or always.

        `each_time`: the engine may have cleared its cache and tells of it with its next request only.
        """
        if paused or self._worker.state is WorkerState.PAUSED or not self._asked_weights:
            return True
        return each_time and self._weights is not None and bool(self._weights.version)

    def _saw_weights(self, version: str | None, *, paused: bool) -> None:
        """Empty the views when the weights are others and nothing has told that the cache is gone."""
        before, self._asked_weights = self._weights, True
        if version is None:
            version = before.version if before is not None else ""
        self._weights = weights_now(self._worker, version)
        if before is not None and before.version and before.version != version:
            weights_changed(self._worker, before, paused=paused)

    async def _wait(self, seconds: float) -> None:
        """Wait that long, or until somebody wants the worker to be looked at, also since the last look."""
        try:
            async with asyncio.timeout(seconds):
                await self._look.wait()
        except TimeoutError:
            return
        self._look.clear()
