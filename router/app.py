"""The one place where the parts are put together."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from router.api.admin import admin_routes
from router.api.control import control_app, has_route
from router.api.edge import Edge
from router.api.explain import Explainer
from router.api.hosts import Hosts
from router.api.knocks import Knocks
from router.api.watch import Watch
from router.derived import rules_of
from router.epp.passage import Passage
from router.epp.picker import Picker
from router.live import Live
from router.members import members_of, rows_of
from router.observe.decisions import Decisions
from router.observe.delay import LoopDelay
from router.observe.exposition import Exposition
from router.observe.metrics import Metrics
from router.observe.seen import look
from router.proxy.descriptors import Descriptors
from router.proxy.limits import ClientLimits
from router.routing import routing_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI

    from router.derived import Rules
    from router.members import Members
    from router.observe.sight import Sight
    from router.routing import Routing
    from router.startup import Startup


@dataclass(frozen=True, slots=True)
class App:
    """The application, what of it takes other settings, and what picks endpoints for Envoy."""

    edge: Edge
    live: Live
    picker: Picker


def build(startup: Startup, *, page: bool) -> App:
    """Return it; needs a running loop. `page`: with one that shows the fleet."""
    parts = _Parts(startup)
    sight = parts.sight()
    return App(parts.edge(sight, parts.control(sight, page=page)), parts.live(), parts.picker())


class _Parts:
    """All parts, for those that are made of several of them."""

    def __init__(self, startup: Startup) -> None:
        self._startup = startup
        self._config = startup.config
        self._metrics, self._descriptors = Metrics(), Descriptors()
        self._rules: Rules = rules_of(startup.config)
        self._members: Members = members_of(startup, self._rules, self._metrics, self._descriptors)
        self._routing: Routing = routing_of(startup, self._members, self._rules, self._metrics)
        self._members.changes(self._routing.admission.advance)
        self._knocks = Knocks("for want of a valid admin key", perf_counter)
        self._misnamed = Knocks("for the name that they ask by (--allowed-host)", perf_counter)
        self._let_see()

    def _let_see(self) -> None:
        """Let the metrics read what others count."""
        metrics, startup = self._metrics, self._startup
        fleet, admission, bodies = self._members.fleet, self._routing.admission, self._routing.bodies
        metrics.policy_failures = startup.front.wishes.failures
        metrics.record, metrics.spans_lost = startup.witness.recorder, startup.witness.spans_lost
        metrics.index, metrics.serving = fleet.index.size, fleet.serving
        metrics.token_checks = startup.tokenizers.check.totals
        metrics.discovery, metrics.share = self._members.discovery.failing, self._members.company.share
        metrics.waiting, metrics.turned_away = admission.waiting_for, admission.refused
        metrics.queue_limit, metrics.held_bytes = (lambda: admission.most_waiting), (lambda: bodies.held)
        if startup.front.door is not None:
            metrics.clients = startup.front.door.counts

    def sight(self) -> Sight:
        """Return who shows what there is to see."""
        exposition = Exposition(self._metrics, partial(rows_of, self._startup, self._members))
        return self._members.company.sight(exposition)

    def control(self, sight: Sight, *, page: bool) -> FastAPI:
        """Return the routes beside those that workers answer."""
        fleet, routing, wishes = self._members.fleet, self._routing, self._startup.front.wishes
        control = control_app(
            fleet,
            Explainer(fleet, routing.planner, routing.judge, wishes),
            sight,
            max_body_bytes=self._config.max_body_bytes,
            bodies=routing.bodies,
            lifespan=self._lifespan,
            page=page,
        )
        crew = self._members.company.crew(self._members.membership)
        if self._config.admin_key is not None:
            control.include_router(admin_routes(fleet, crew, self._config.admin_key, self._knocks))
        return control

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        await self._members.start()
        delay = LoopDelay(self._metrics.delays.observe)
        keys = self._startup.front.keys
        watch = asyncio.create_task(keys.watch()) if keys is not None else None
        try:
            yield
        finally:
            delay.close()
            self._descriptors.close()
            self._knocks.close()
            self._misnamed.close()
            if self._startup.front.door is not None:
                self._startup.front.door.close()
            if watch is not None:
                watch.cancel()
            await self._startup.witness.close(self._members.fleet)
            await self._members.close()
            await self._startup.tokenizers.close()
            self._routing.reader.close()

    def edge(self, sight: Sight, control: FastAPI) -> Edge:
        """Return what all connections come to."""
        front, fleet = self._startup.front, self._members.fleet
        address = self._startup.listening.getsockname()[0]
        return Edge(
            self._routing.completions,
            control,
            self._watch(sight),
            controls=partial(has_route, control),
            leaving=fleet.leave,
            stopping=fleet.stop_waiting,
            forwarding=front.forwarding,
            limits=ClientLimits(stall_seconds=self._config.client_idle_seconds),
            hosts=Hosts(address, self._config.allowed_hosts, self._misnamed, keys=front.door is not None),
            door=front.door,
        )

    def _watch(self, sight: Sight) -> Watch:
        team = self._startup.team
        process = "" if team is None else f"{team.seat.index + 1} of {self._config.processes}"
        return Watch(
            partial(look, sight, self._metrics, self._config.policy, process),
            Decisions(),
            self._members.fleet.roster.resets,
            self._startup.front.door,
            self._routing.completions,
        )

    def live(self) -> Live:
        """Return what takes other settings."""
        members, routing = self._members, self._routing
        return Live(
            self._rules,
            routing.retries,
            routing.admission,
            members.membership,
            members.discovery,
            self._startup.front,
            members.company.index,
        )

    def picker(self) -> Picker:
        """Return what picks endpoints."""
        routing = self._routing
        return Picker(
            self._members.fleet,
            routing.planner,
            routing.dispatcher,
            routing.admission,
            self._startup.front.wishes,
            bodies=routing.bodies,
            most_bytes=self._config.max_body_bytes,
            passage=partial(Passage, metrics=self._metrics, observers=self._startup.witness.request_log()),
        )
