"""SGLang 0.5.23's control routes: pause, continue, flush, weights, abort."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from workers.engine import control
from workers.http.answer import Json, Text
from workers.http.body import boolean, string, strings
from workers.http.control import json_body, route, seconds
from workers.http.errors import BadRequest

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from workers.engine.rank import Rank
    from workers.http.edge import Edge

_MODES = ("abort", "retract", "in_place")
_OTHER_WEIGHT_SOURCES = ("tensor", "distributed", "ipc")
_DRAIN_SECONDS = 3600.0
_POLL_SECONDS = 0.005
_UPDATED = "Succeeded to update model weights."
_NOT_FLUSHED = (
    "The weights were updated, but the cache was not flushed because requests are still running or queued."
)


def control_routes(edge: Edge) -> list[Route]:
    """Return the routes that change what the scheduler does."""
    acts = Controls(edge)
    weights = [
        route(edge, "POST", f"/update_weights_from_{source}", acts.update_weights)
        for source in _OTHER_WEIGHT_SOURCES
    ]
    return [
        route(edge, "POST", "/pause_generation", acts.pause),
        route(edge, "POST", "/continue_generation", acts.resume),
        route(edge, "GET POST", "/flush_cache", acts.flush),
        route(edge, "POST", "/update_weights_from_disk", acts.update_weights_from_disk),
        route(edge, "POST", "/release_memory_occupation", acts.release_memory),
        route(edge, "POST", "/resume_memory_occupation", acts.resume_memory),
        route(edge, "POST", "/abort_request", acts.abort),
        *weights,
    ]


@dataclass(slots=True)
class Controls:
    """The handlers; each applies its message to all ranks between two of their iterations."""

    edge: Edge

    async def pause(self, request: Request) -> Json:
        """Stop the scheduler in one of three modes; new requests hang from now on."""
        mode = (await json_body(request)).get("mode", "abort")
        if mode not in _MODES:
            message = f"Invalid mode: {mode!r}. Must be one of {', '.join(_MODES)}."
            raise BadRequest(message, param="mode")
        self.edge.gate.clear()
        self.edge.mark_paused()
        await self.edge.every(lambda rank, now: control.pause(rank, mode, now))
        return Json({"message": "Generation paused successfully.", "status": "ok"})

    async def resume(self, request: Request) -> Json:
        """Let the scheduler and new requests go on."""
        await json_body(request)
        await self.edge.end_pause()
        return Json({"message": "Generation continued successfully.", "status": "ok"})

    async def flush(self, request: Request) -> Text:
        """Empty the cache, waiting up to `timeout` seconds until nothing is running or queued."""
        limit = seconds(request, "timeout", default=0.0)
        if self.edge.flushing:
            return Text("Another flush_cache is already in progress.\n", 400)
        self.edge.flushing = True
        try:
            if limit > 0 and not await self._idle_within(limit):
                return Text("Timed out waiting for idle state.\n", 400)
            flushed = await self._flush_all()
        finally:
            self.edge.flushing = False
        return Text("Cache flushed.\n") if flushed else Text("Flush cache failed.\n", 400)

    async def _idle_within(self, limit: float) -> bool:
        """Return whether all ranks were idle together within `limit` seconds."""
        deadline = monotonic() + limit
        while not all(await self.edge.every(lambda rank, _now: _idle(rank))):
            if monotonic() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    async def _flush_all(self) -> bool:
        return all(await self.edge.every(lambda rank, _now: control.flush(rank)))

    async def update_weights_from_disk(self, request: Request) -> Json:
        """Change the weights; a refused flush is a 400 although the weights have changed."""
        body = await json_body(request)
        path = string(body, "model_path")
        if path is None:
            raise BadRequest("model_path is required", param="model_path")
        held = sum(await self.edge.every(lambda rank, _now: control.held(rank))) if self.edge.paused else 0
        answer = await self._update(body, path)
        answer.value["num_paused_requests"] = held
        return answer

    async def update_weights(self, request: Request) -> Json:
        """Change the weights from somewhere else than a disk."""
        return await self._update(await json_body(request), self.edge.model_path)

    async def _update(self, body: dict[str, Any], path: str) -> Json:
        """Change the weights; what comes meanwhile waits.

        `keep_pause`: an update of an engine that was not paused leaves it paused.
        """
        # All of the body is read before any of it takes effect.
        version = string(body, "weight_version")
        flush = boolean(body, "flush_cache", default=True)
        keep_pause = boolean(body, "keep_pause", default=False)
        if boolean(body, "abort_all_requests", default=False):
            await self.edge.every(lambda rank, _now: control.abort_all(rank))
        if not self.edge.paused:
            self.edge.gate.clear()
            await self._idle_within(_DRAIN_SECONDS)
        try:
            self.edge.model_path = path
            self.edge.weight_version = version or self.edge.weight_version
            flushed = not flush or await self._flush_all()
        finally:
            await self._after_update(keep_pause=keep_pause)
        value = {"success": flushed, "message": _UPDATED if flushed else _NOT_FLUSHED}
        return Json(value, 200 if flushed else 400)

    async def _after_update(self, *, keep_pause: bool) -> None:
        if keep_pause:
            self.edge.mark_paused()
            await self.edge.every(lambda rank, now: control.pause(rank, "in_place", now))
        if not self.edge.paused:
            self.edge.gate.set()

    async def release_memory(self, request: Request) -> Json:
        """Give memory back; without its KV pool an engine has no cache."""
        tags = strings(await json_body(request), "tags")
        if tags is None or "kv_cache" in tags:
            await self._flush_all()
        return Json(None)

    async def resume_memory(self, request: Request) -> Json:
        """Take memory again; there is nothing to do here."""
        strings(await json_body(request), "tags")
        return Json(None)

    async def abort(self, request: Request) -> Text:
        """Abort the requests whose id starts with `rid`, or all."""
        body = await json_body(request)
        rid = string(body, "rid")
        rid = "" if boolean(body, "abort_all", default=False) else rid
        if rid is not None:
            await self.edge.every(lambda rank, _now: _abort(rank, rid))
        return Text()


def _idle(rank: Rank) -> bool:
    return rank.idle()


def _abort(rank: Rank, rid: str) -> None:
    for request in control.find(rank, rid):
        control.abort(rank, request)
