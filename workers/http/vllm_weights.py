"""vLLM 0.32's weight updates: begun, sent in pieces, finished; and what the weights are called.

The cache is a matter of the pause and of /reset_prefix_cache. A piece without `update_info` is refused and
leaves the update open; what the engine itself refuses is an error 500 that names its own call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workers.http.answer import Json
from workers.http.body import string
from workers.http.control import json_body, route
from workers.http.errors import EdgeError, missing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from workers.http.edge import Edge


def weight_routes(edge: Edge) -> list[Route]:
    """Return the routes of an update, and of the version."""
    weights = Weights(edge)
    return [
        route(edge, "POST", "/start_weight_update", weights.start),
        route(edge, "POST", "/update_weights", weights.update),
        route(edge, "POST", "/finish_weight_update", weights.finish),
        route(edge, "POST", "/update_weight_version", weights.rename),
        route(edge, "GET", "/weight_info", weights.info),
    ]


@dataclass(slots=True)
class Weights:
    """The handlers."""

    edge: Edge

    async def start(self, _request: Request) -> Json:
        """Begin an update."""
        self._expect(
            "start_weight_update called while a weight update is already active. "
            "Call finish_weight_update first.",
            updating=False,
        )
        self.edge.updating = True
        return Json({"message": "Weight update started"})

    async def update(self, request: Request) -> Json:
        """Take one piece; how it comes depends on the wire, and is not looked at."""
        body = await json_body(request)
        if not isinstance(body.get("update_info"), dict | list):
            raise missing("body.update_info")
        self._expect("start_weight_update must be called before update_weights.", updating=True)
        return Json({"message": "Weights updated"})

    async def finish(self, request: Request) -> Json:
        """Use the new weights, by a new name if there is one."""
        version = string(await json_body(request), "weight_version")
        self._expect("finish_weight_update called without a matching start_weight_update.", updating=True)
        self.edge.updating = False
        self.edge.weight_version = version or self.edge.weight_version
        return Json({"message": "Weight update finished"})

    async def rename(self, request: Request) -> Json:
        """Call the weights something else."""
        version = string(await json_body(request), "new_version")
        if version is None:
            raise missing("body.new_version")
        self.edge.weight_version = version
        return Json({"success": True, "new_version": version})

    async def info(self, _request: Request) -> Json:
        """Say what the weights are called."""
        return Json({"weight_version": self.edge.weight_version})

    def _expect(self, otherwise: str, *, updating: bool) -> None:
        if self.edge.updating is updating:
            return
        message = (
            f"Call to collective_rpc method failed: Worker failed with error '{otherwise}', "
            "please check the stack trace above for the root cause"
        )
        raise EdgeError(message, status=500, kind="InternalServerError")
