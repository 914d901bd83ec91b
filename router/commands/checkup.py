"""One worker, checked from here as the router would use it: every finding with its cure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from router.commands.findings import Chart, Finding
from router.commands.ink import plural
from router.commands.rankcheck import RankCheckup, Tools
from router.commands.tokencheck import check_tokens
from router.engines.detect import ENGINES, describe
from router.errors import UpstreamFailed
from router.proxy.limits import Limits
from router.proxy.upstream import Upstream
from router.streams.sockets import context
from router.streams.turns import Turns

if TYPE_CHECKING:
    from router.engines.description import Description
    from router.fleet.spec import WorkerSpec


@dataclass(frozen=True, slots=True)
class Means:
    """What workers may be asked with; `seconds` is the longest wait for each answer.

    `passive`: send no request that an engine would have to compute.
    """

    key: str | None = field(default=None, repr=False)
    tokenizer: str | None = None
    seconds: float = 5.0
    passive: bool = False


class Checkup:
    """Checks one worker; `findings` are in the order of the checks."""

    def __init__(self, spec: WorkerSpec, means: Means) -> None:
        self._spec = spec
        self._means = means
        self.chart = Chart(spec.url)
        limits = Limits(connect_seconds=means.seconds)
        self._upstream = Upstream(spec.url, limits=limits, key=means.key)

    async def run(self) -> list[Finding]:
        """Return what was found."""
        try:
            said = await self._reach()
            if said is not None:
                tried = await self._may_try(said)
                await check_tokens(self.chart, said, self._means, self._upstream, tried=tried)
                await self._ranks(said, tried=tried)
        finally:
            await self._upstream.close()
        return self.chart.findings

    async def _reach(self) -> Description | None:
        try:
            said = await describe(self._upstream, self._spec)
        except UpstreamFailed as failure:
            self.chart.wrong("reachable", failure.message, "start the worker, or give its right URL and key")
            return None
        version = f" {said.version}" if said.version else ""
        ranks = plural(len(said.sources), "rank")
        self.chart.well("reachable", f"{said.engine}{version} serves {said.model}, {ranks}, role {said.role}")
        return said

    async def _ranks(self, said: Description, *, tried: bool) -> None:
        tools = Tools(self._means, self._upstream, context(), Turns())
        try:
            for rank in range(len(said.sources)):
                chart = Chart(f"{self._spec.url} rank {rank}") if len(said.sources) > 1 else self.chart
                await RankCheckup(chart, said, rank, tools).run(tried=tried)
                if chart is not self.chart:
                    self.chart.findings += chart.findings
        finally:
            tools.zmq.destroy(linger=0)

    async def _may_try(self, said: Description) -> bool:
        """Whether the worker can be sent a request that shows its events."""
        cure = "run this again when it is not"
        if self._means.passive:
            self.chart.note("trial", "no request was sent (--quiet-workers)", "run this without it")
            return False
        if said.role != "both" and not (said.role == "decode" and ENGINES[said.engine].DECODES_ALONE):
            self.chart.note(
                "trial", f"a {said.role} worker answers no request alone", "check events on the router's page"
            )
            return False
        try:
            paused = await ENGINES[said.engine].is_paused(self._upstream)
        except UpstreamFailed as failure:
            self.chart.wrong("trial", failure.message, cure)
            return False
        if paused:
            self.chart.note("trial", "the worker is paused", cure)
        return not paused
