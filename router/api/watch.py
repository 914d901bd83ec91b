"""GET /watch: the fleet as a stream of server-sent events, one a second, for the page and `kv-router top`.

A snapshot is made once, however many watch, and none while nobody does. Whoever reads too slowly misses
snapshots, holds none back, and is cut after a while. The first that somebody gets, and the first after a
missed one, is `whole`: it has all decisions and resets that are kept; the others have what is new.

The route stands behind the same door as /workers; a key that is taken away ends the stream. It is in no
document: a client that reads an answer to its end would never be done with it.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from router.api.answers import send_error
from router.errors import Overloaded, RouterError
from router.observe.decisions import MOST as MOST_DECISIONS
from router.proxy.cycle import reset

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from router.api.door import Door
    from router.observe.decisions import Decisions
    from router.observe.resets import Resets
    from router.observe.seen import Seen
    from router.observe.story import Observer
    from router.proxy.cycle import Cycle

PATH = "/watch"
MOST_WATCHERS = 16
_MOST_MISSED = 30
_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx passes it on at once
    (b"x-content-type-options", b"nosniff"),
)
_log = logging.getLogger(__name__)


class Observed(Protocol):
    """Who serves requests, and tells observers of them."""

    def attach(self, observer: Observer) -> None:
        """Tell one more observer of the requests that begin from now on."""

    def detach(self, observer: Observer) -> None:
        """Tell it of no more."""


class _Watcher:
    """`missed` snapshots in a row; `behind`: what is new would not be all that it has not seen."""

    __slots__ = ("behind", "cycle", "missed")

    def __init__(self, cycle: Cycle) -> None:
        self.cycle = cycle
        self.behind = True
        self.missed = 0


class Watch:
    """Serves the route. `read` makes a snapshot, without decisions and resets, each so many `seconds`.

    `observed` tells of decisions, while somebody watches.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Seen]],
        decisions: Decisions,
        resets: Resets,
        door: Door | None,
        observed: Observed,
        *,
        seconds: float = 1.0,
    ) -> None:
        self._read = read
        self._decisions = decisions
        self._resets = resets
        self._door = door
        self._observed = observed
        self._seconds = seconds
        self._watchers: dict[Cycle, _Watcher] = {}
        self._task: asyncio.Task[None] | None = None
        self._next = 0.0
        self._told = (0, 0)
        self._closed = False
        self._loop = asyncio.get_running_loop()

    async def serve(self, cycle: Cycle) -> None:
        """Begin to answer; what follows is written as it comes."""
        try:
            if self._door is not None:
                self._door.admit(cycle.headers, cycle.sender, counted=False)
            self._take(cycle)
        except RouterError as error:
            send_error(cycle, error, b"-")

    def close(self) -> None:
        """End all streams, and take no more."""
        self._closed = True
        for cycle in list(self._watchers):
            self._leave(cycle)
            cycle.end()

    def _take(self, cycle: Cycle) -> None:
        if self._closed or len(self._watchers) >= MOST_WATCHERS:
            raise Overloaded(f"no more than {MOST_WATCHERS} can watch at a time", retry_after=5)
        cycle.begin(200, _HEADERS, b"retry: 2000\n\n", more=True)
        cycle.flow.resume_reading()  # else the end of who has sent a long body would not be seen
        cycle.on_lost = partial(self._leave, cycle)
        self._watchers[cycle] = _Watcher(cycle)
        if self._task is None:
            self._task = self._loop.create_task(self._run())
            self._observed.attach(self._decisions.observe)

    def _leave(self, cycle: Cycle) -> None:
        cycle.on_lost = None
        self._watchers.pop(cycle, None)
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None
            self._observed.detach(self._decisions.observe)

    async def _run(self) -> None:
        """Tell all watchers of the fleet once a second; who comes and goes does not make it more often."""
        self._told = (self._decisions.ring.count, self._resets.count)
        while self._watchers:
            self._decisions.room = MOST_DECISIONS
            await asyncio.sleep(self._next - self._loop.time())
            self._next = self._loop.time() + self._seconds
            try:
                self._tell(await self._read())
            except Exception:  # noqa: BLE001 - whatever it is, the next one may be made
                _log.exception("the fleet could not be shown")

    def _tell(self, seen: Seen) -> None:
        told, self._told = self._told, (self._decisions.ring.count, self._resets.count)
        news, whole = self._event(seen, told), b""
        for cycle, watcher in list(self._watchers.items()):
            if not self._is_allowed(cycle):
                self._leave(cycle)
                cycle.end()
            elif cycle.flow.write_paused:
                self._missed(watcher)
            elif watcher.behind:
                whole = whole or self._event(seen, None)
                watcher.behind, watcher.missed = False, 0
                cycle.write(whole)
            else:
                cycle.write(news)

    def _event(self, seen: Seen, since: tuple[int, int] | None) -> bytes:
        decisions, resets = since or (0, 0)
        seen.whole = since is None
        seen.decisions = self._decisions.ring.since(decisions)
        seen.resets = self._resets.since(resets)
        return b"data: " + msgspec.json.encode(seen) + b"\n\n"

    def _missed(self, watcher: _Watcher) -> None:
        watcher.behind = True
        watcher.missed += 1
        if watcher.missed >= _MOST_MISSED:
            self._leave(watcher.cycle)
            reset(watcher.cycle.transport)

    def _is_allowed(self, cycle: Cycle) -> bool:
        return self._door is None or self._door.knows(cycle.headers)
