"""vLLM 0.32's control routes: pause, resume, sleep, wake, reset.

All of them come down to the rank's own pause and flush. A clear that they cause leaves with the next step,
so an idle or paused engine keeps it to itself. A paused engine is reported as sleeping too, as the real one
is, stays healthy, and takes requests that hang in its queue. A sleep lasts until all memory is awake, by
name or at once, whether or not the scheduler goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workers.engine import control
from workers.http.answer import Json
from workers.http.control import choice, flag, route, whole

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from workers.engine.rank import Rank
    from workers.http.edge import Edge

_MODES = ("abort", "wait", "keep")
_DEEPEST = 2
_MEMORY = frozenset({"weights", "kv_cache"})  # what sleeps, by the tags of /wake_up
_DRAIN_SECONDS = 3600.0


def control_routes(edge: Edge) -> list[Route]:
    """Return the routes that change what the scheduler does, and those that say what they did."""
    acts = Controls(edge)
    return [
        route(edge, "POST", "/pause", acts.pause),
        route(edge, "POST", "/resume", acts.resume),
        route(edge, "GET", "/is_paused", acts.is_paused),
        route(edge, "POST", "/sleep", acts.sleep),
        route(edge, "POST", "/wake_up", acts.wake_up),
        route(edge, "GET", "/is_sleeping", acts.is_sleeping),
        route(edge, "POST", "/reset_prefix_cache", acts.reset_prefix_cache),
    ]


@dataclass(slots=True)
class Controls:
    """The handlers; each applies its message to all ranks between two of their iterations."""

    edge: Edge

    async def pause(self, request: Request) -> Json:
        """Pause: `abort` ends all requests, `wait` lets them end, `keep` freezes them (or requeues them)."""
        mode = choice(request, "mode", _MODES, default="abort")
        await self._pause(mode, clear=flag(request, "clear_cache", default=True))
        return Json({"status": "paused"})

    async def _pause(self, mode: str, *, clear: bool) -> bool:
        """Return whether the pause is in force: `/resume` may have ended it while requests were ending."""
        self.edge.gate.clear()
        self.edge.mark_paused()
        if mode != "keep" and not await self._drained(abort=mode == "abort"):
            return False
        await self.edge.every(lambda rank, now: control.pause(rank, "in_place", now))
        if clear:
            await self.edge.every(_clear)
        self.edge.gate.set()
        return True

    async def _drained(self, *, abort: bool) -> bool:
        """Wait until every request has ended, also what an earlier pause has frozen.

        Return False if `/resume` comes first. KV that is kept for a decode worker is no request.
        """
        before = self.edge.resumed
        await self.edge.every(_end_all if abort else _go_on)
        for driver in self.edge.drivers:
            await driver.until(
                lambda rank: not rank.requests() or self.edge.resumed != before, _DRAIN_SECONDS
            )
        return self.edge.resumed == before

    async def resume(self, _request: Request) -> Json:
        """Go on."""
        await self.edge.end_pause()
        return Json({"status": "resumed"})

    async def is_paused(self, _request: Request) -> Json:
        """Whether a pause or a sleep is in force."""
        return Json({"is_paused": self.edge.paused})

    async def sleep(self, request: Request) -> Json:
        """Pause, and from level 1 on also drop the cache."""
        level = whole(request, "level", default=1, most=_DEEPEST)
        mode = choice(request, "mode", _MODES, default="abort")
        if await self._pause(mode, clear=level > 0) and level:
            self.edge.sleep_level, self.edge.asleep = level, _MEMORY
        return Json({"status": "sleeping", "level": level})

    async def wake_up(self, request: Request) -> Json:
        """Wake the memory that is named, else all of it; go on once all is awake."""
        tags = request.query_params.getlist("tags") or None
        named = frozenset(tags or _MEMORY) - {"scheduling"}
        if named <= self.edge.asleep or tags is None:
            self.edge.asleep -= named
        if not self.edge.asleep:
            await self.edge.end_pause()
            self.edge.sleep_level = None
        return Json({"status": "sleeping" if self.edge.asleep else "awake", "tags": tags})

    async def is_sleeping(self, _request: Request) -> Json:
        """Whether a sleep or a pause is in force."""
        return Json({"is_sleeping": self.edge.paused or bool(self.edge.asleep)})

    async def reset_prefix_cache(self, request: Request) -> Json:
        """Empty the cache, refused while requests hold KV unless they may be requeued."""
        requeue = flag(request, "reset_running_requests", default=False)
        done = await self.edge.every(_clear if requeue else lambda rank, _now: control.flush(rank))
        return Json({"success": all(done)})


def _go_on(rank: Rank, _now: float) -> None:
    control.resume(rank)


def _end_all(rank: Rank, now: float) -> None:
    control.abort_all(rank)
    _go_on(rank, now)


def _clear(rank: Rank, now: float) -> bool:
    """Requeue what runs and empty the cache."""
    control.retract(rank, now)
    rank.clear()
    return True
