"""One request that Envoy carries, as it is counted and told of: by what Envoy tells the router of it.

The rule of this module: it is counted once, when its stream ends or it is refused. What the answer was is
known by its headers' status, where Envoy sends them; a choice of which nothing more is heard is "other".
"""

from __future__ import annotations

from random import getrandbits
from time import perf_counter
from typing import TYPE_CHECKING

from router.api.exchange import CLIENT_CLOSED_REQUEST, REQUEST_ID
from router.observe.story import Story

if TYPE_CHECKING:
    from router.api.planner import Plan
    from router.errors import RouterError
    from router.observe.metrics import Metrics
    from router.observe.story import Observer
    from router.prompts.request import Kind
    from router.proxy.headers import Field

_UNKNOWN = 0  # of no class of status: "other"


class Passage:
    """`headers` are the client's. `model` is the one asked for, once it is known to be served here."""

    __slots__ = ("_metrics", "_over", "began", "headers", "id", "kind", "model", "status", "story")

    def __init__(
        self, kind: Kind, headers: list[Field], metrics: Metrics, observers: tuple[Observer, ...]
    ) -> None:
        self.began = perf_counter()
        self.headers = headers
        self.id = dict(headers).get(REQUEST_ID) or b"%032x" % getrandbits(128)
        self.model: str | None = None
        self.status = CLIENT_CLOSED_REQUEST
        self.kind = kind
        self._metrics = metrics
        self._over = False
        self.story = Story(self, kind, observers) if observers else None

    def planned(self, plan: Plan) -> None:
        """It is known where it may go."""
        self.model = plan.route.model
        if self.story is not None:
            self.story.plan_made(plan)

    def chosen(self) -> None:
        """Envoy is told where it goes; whether it arrives is for Envoy to tell."""
        self.status = _UNKNOWN

    def refused(self, error: RouterError) -> None:
        """It is over, with this instead of a worker's answer."""
        if not self._over:
            self.status = error.status
            self._metrics.failed(error)
            if self.story is not None:
                self.story.failed(error)
            self.end()

    def answered(self, status: int) -> None:
        """A worker's answer has begun with this status."""
        self.status = status
        if self.story is not None:
            self.story.started()

    def end(self) -> None:
        """It is over, however; any number of times."""
        if not self._over:
            self._over = True
            seconds = perf_counter() - self.began
            self._metrics.answered(self.kind.value, self.status, seconds, self.model)
            if self.story is not None:
                self.story.end()
