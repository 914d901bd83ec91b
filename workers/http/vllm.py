"""vLLM 0.32's control routes: pause, resume, sleep, wake, reset.

All of them come down to the rank's own pause and flush. A clear that they cause leaves with the next step,
so an idle or paused engine keeps it to itself. A paused engine is reported as sleeping too, as the real one
is, stays healthy, and takes requests that hang in its queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workers.engine import control
from workers.http.answer import Json
from workers.http.body import string
from workers.http.control import choice, flag, json_body, route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from workers.engine.rank import Rank
    from workers.http.edge import Edge

_MODES = ("abort", "wait", "keep")
_LEVELS = ("0", "1", "2")
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
        route(edge, "POST", "/start_weight_update", acts.start_weight_update),
        route(edge, "POST", "/update_weights", acts.update_weights),
        route(edge, "POST", "/finish_weight_update", acts.finish_weight_update),
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
        level = choice(request, "level", _LEVELS, default="1")
        mode = choice(request, "mode", _MODES, default="abort")
        if await self._pause(mode, clear=level != "0"):
            self.edge.sleep_level = int(level)
        return Json({"status": "sleeping", "level": int(level)})

    async def wake_up(self, request: Request) -> Json:
        """Go on after a sleep."""
        await self.edge.end_pause()
        return Json({"status": "awake", "tags": request.query_params.getlist("tags") or None})

    async def is_sleeping(self, _request: Request) -> Json:
        """Whether a sleep or a pause is in force."""
        return Json({"is_sleeping": self.edge.paused})

    async def reset_prefix_cache(self, request: Request) -> Json:
        """Empty the cache, refused while requests hold KV unless they may be requeued."""
        requeue = flag(request, "reset_running_requests", default=False)
        done = await self.edge.every(_clear if requeue else lambda rank, _now: control.flush(rank))
        return Json({"success": all(done)})

    async def start_weight_update(self, request: Request) -> Json:
        """Get ready for new weights."""
        await self._note_version(request)
        return Json({"message": "Weight update started"})

    async def update_weights(self, request: Request) -> Json:
        """Change the weights; the cache is a matter of the pause and of /reset_prefix_cache."""
        await self._note_version(request)
        return Json({"message": "Weights updated"})

    async def finish_weight_update(self, request: Request) -> Json:
        """Use the new weights."""
        await self._note_version(request)
        return Json({"message": "Weight update finished"})

    async def _note_version(self, request: Request) -> None:
        """Take the `weight_version` of a body.

        What else the three bodies hold depends on how the weights come, and is not looked at; which of the
        three calls names the version has changed with vLLM's releases, so each may.
        """
        version = string(await json_body(request), "weight_version")
        self.edge.weight_version = version or self.edge.weight_version


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
