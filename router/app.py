"""The one place where the parts are put together, and the process that serves them."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from router.api.admin import admin_routes
from router.api.admission import Admission
from router.api.completions import Completions
from router.api.control import control_app
from router.api.dispatch import Dispatcher
from router.api.edge import Edge
from router.api.explain import Explainer
from router.api.planner import Planner
from router.api.retries import Retries
from router.core.cost import POLICIES
from router.derived import breaker_rules_of, capacity_of, limits_of, weights_of
from router.errors import ConfigError
from router.fleet.allowed import Allowed
from router.fleet.discovery.discovery import Discovery
from router.fleet.discovery.reconciler import Reconciler
from router.fleet.discovery.sources import sources_of
from router.fleet.fleet import Fleet
from router.fleet.limits import ViewLimits
from router.fleet.membership import Membership
from router.fleet.snapshot import snapshot
from router.front import Front
from router.live import Live
from router.observe import logs
from router.observe.exposition import Exposition
from router.observe.metrics import Metrics
from router.pairs.choice import Judge
from router.prompts.reader import PromptReader
from router.prompts.store import TokenizerStore
from router.proxy.body import MOST_BYTES, BodyBudget
from router.proxy.edge import EdgeProtocol
from router.proxy.keepalive import keep_alive
from router.proxy.upstream import Upstream
from router.reload import Reload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from types import FrameType

    from fastapi import FastAPI

    from router.config import Config, Flags
    from router.fleet.discovery.wanted import Source
    from router.observe.rows import WorkerRow
    from router.observe.story import Observer

_BACKLOG = 4096
# Container objects made and not freed since the collector last ran.
_COLLECT_AFTER = 50_000
_log = logging.getLogger(__name__)


def build(
    config: Config, tokenizers: TokenizerStore, front: Front, sources: Sequence[Source]
) -> tuple[Edge, Live]:
    """Return the application, and what of it takes other settings; needs a running loop."""
    metrics = Metrics()
    limits, weights, breaker_rules = limits_of(config), weights_of(config), breaker_rules_of(config)
    fleet = Fleet(
        config.workers,
        upstream_limits=limits,
        view_limits=ViewLimits(
            predicted_ttl=config.predicted_ttl_seconds,
            approximate_ttl=config.approximate_ttl_seconds,
            predicted_bound=config.predicted_max_blocks,
            index_bound=config.index_max_blocks,
            replay_seconds=config.replay_seconds,
        ),
        probe_seconds=config.probe_seconds,
        prepare=tokenizers.prepare,
        connect=partial(Upstream, tls=front.worker_tls, key=config.worker_api_key),
        breaker=breaker_rules,
    )
    membership = Membership(fleet.roster, Allowed(config.worker_allow), drain_seconds=config.drain_seconds)
    reconciler = Reconciler(membership, fleet.workers, config.worker_allow)
    discovery = Discovery(reconciler, sources, config.workers)
    metrics.index = fleet.index.size
    reader = PromptReader()
    policy = POLICIES[config.policy]
    judge = Judge(fleet.index, policy, weights, Random(), config.pd_min_uncached)
    planner = Planner(
        fleet,
        reader,
        tokenizers,
        metrics,
        guesses=policy.uses_overlap,
        forward_input_ids=config.forward_input_ids == "on",
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        fleet.start()
        discovery.start()
        watch = asyncio.create_task(front.keys.watch()) if front.keys is not None else None
        try:
            yield
        finally:
            if watch is not None:
                watch.cancel()
            await discovery.close()
            await membership.close()
            await fleet.close()
            await tokenizers.close()
            reader.close()

    metrics.token_checks = tokenizers.check.totals
    if front.door is not None:
        metrics.clients = front.door.counts

    def rows() -> list[WorkerRow]:
        return snapshot(fleet.workers.values(), tokenizers.mode)

    bodies = BodyBudget(max(MOST_BYTES, config.max_body_bytes))
    admission = Admission(capacity_of(config), lambda rank: fleet.worker_of(rank).requests(), metrics.waits)
    metrics.waiting, metrics.turned_away = (lambda: admission.waiting), admission.refused
    fleet.on_change = partial(asyncio.get_running_loop().call_soon, admission.advance)
    retries = Retries(metrics, most=config.retries, share=config.retry_share, floor=config.retry_floor)
    dispatcher = Dispatcher(
        fleet,
        planner,
        metrics,
        judge,
        retries=retries,
        admission=admission,
    )
    observers: list[Observer] = []
    completions = Completions(
        planner,
        dispatcher,
        admission,
        metrics,
        max_body_bytes=config.max_body_bytes,
        bodies=bodies,
        limits=limits,
        observers=tuple(observers),
    )
    control = control_app(
        fleet,
        Explainer(fleet, planner, judge),
        Exposition(metrics, rows),
        rows,
        max_body_bytes=config.max_body_bytes,
        bodies=bodies,
        lifespan=lifespan,
    )
    if config.admin_key is not None:
        control.include_router(admin_routes(fleet, membership, config.admin_key))
    edge = Edge(
        completions,
        control,
        leaving=fleet.leave,
        stopping=fleet.stop_waiting,
        forwarding=front.forwarding,
        door=front.door,
    )
    return edge, Live(weights, limits, breaker_rules, retries, admission, membership, discovery, front)


class Server(uvicorn.Server):
    """uvicorn's server, which calls `stopping` before it waits for the requests under way.

    Told to stop it calls `leaving` at once, and goes on for `leave_seconds` before it stops.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        stopping: Callable[[], None],
        *,
        leaving: Callable[[], None],
        leave_seconds: float,
    ) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._leaving = leaving
        self._leave_seconds = leave_seconds
        self._loop = asyncio.get_running_loop()
        self._told = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal to stop; a second one ends the time that the first has left."""
        first, self._told = not self._told, True
        self._leaving()
        if first and self.started and self._leave_seconds:
            _log.info("stopping in %g s; /ready says so already", self._leave_seconds)
            leave = partial(super().handle_exit, sig, frame)
            self._loop.call_soon_threadsafe(self._loop.call_later, self._leave_seconds, leave)
        else:
            super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; end what has been started at once if it was to stop meanwhile, which uvicorn would leave."""
        await super().startup(sockets)
        if self.should_exit and self.started:
            await self.shutdown(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop taking requests, let those under way end, and close."""
        _log.info("stopping; %d connections are open", len(self.server_state.connections))
        self._stopping()
        await super().shutdown(sockets)


class _Stop:
    """Takes the signals to stop that come while uvicorn does not: before it serves, and once it has."""

    def __init__(self) -> None:
        self.asked = False
        self.server: Server | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True
        if self.server is not None:
            self.server.should_exit = True


def run(config: Config, flags: Flags) -> None:
    """Serve until SIGTERM or SIGINT; `flags` still hold when the settings are read again.

    Raises ConfigError for what cannot be opened or loaded.
    """
    logs.configure(config.log_level)
    sources = sources_of(config, os.environ)
    if not config.workers and not config.worker_allow and not sources:
        _log.warning("there is no worker, and without --worker-allow none can be added")
    front = Front(config)
    tokenizers = TokenizerStore(config.tokenizer, deadline=config.tokenize_seconds)
    listening = _listen(config.host, config.port)
    stop = _Stop()
    _spare_the_collector()
    _open_as_many_files_as_allowed()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, tokenizers, listening, front, stop, sources, flags))


def _open_as_many_files_as_allowed() -> None:
    """Raise the soft limit on open files, often 1024, to the hard one: a request under way holds two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _spare_the_collector() -> None:
    """Keep the garbage collector from walking what lives for ever, and from running for every few requests.

    What requests leave behind is freed by reference counting; the collector is only there for cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 100)


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that takes connections already, so that nobody is refused while the app starts."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keep_alive(listening)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    return listening


async def _serve(
    config: Config,
    tokenizers: TokenizerStore,
    listening: socket.socket,
    front: Front,
    stop: _Stop,
    sources: Sequence[Source],
    flags: Flags,
) -> None:
    host, port = listening.getsockname()[:2]
    _log.info("listening on %s://%s:%d", front.scheme, f"[{host}]" if ":" in host else host, port)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(logs.log_lost_exception)
    loop.add_signal_handler(signal.SIGHUP, front.reload)
    edge, live = build(config, tokenizers, front, sources)
    reload = Reload(config, live, flags, os.environ)
    loop.add_signal_handler(signal.SIGHUP, reload.now)
    watch = asyncio.create_task(reload.watch())
    tls = front.tls
    server = Server(
        uvicorn.Config(
            edge,
            loop="uvloop",
            http=EdgeProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=config.grace_seconds,
            ssl_context_factory=None if tls is None else lambda *_: tls.context,
        ),
        edge.stopping,
        leaving=edge.leaving,
        leave_seconds=config.leave_seconds,
    )
    stop.server = server
    server.should_exit = stop.asked
    await server.serve(sockets=[listening])
    watch.cancel()
