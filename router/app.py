"""The one place where the parts are put together, and the process that serves them."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from router.api.admin import admin_routes
from router.api.completions import Completions
from router.api.control import control_app
from router.api.dispatch import Dispatcher
from router.api.edge import Edge
from router.api.explain import Explainer
from router.api.planner import Planner
from router.core.cost import POLICIES, Weights
from router.errors import ConfigError
from router.fleet.fleet import Fleet
from router.fleet.snapshot import snapshot
from router.fleet.worker import ViewLimits
from router.observe import logs
from router.observe.exposition import Exposition
from router.observe.metrics import Metrics
from router.prompts.reader import PromptReader
from router.prompts.store import TokenizerStore
from router.proxy.body import MOST_BYTES, BodyBudget
from router.proxy.edge import EdgeProtocol
from router.proxy.limits import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fastapi import FastAPI

    from router.config import Config
    from router.observe.rows import WorkerRow

_BACKLOG = 4096
# Container objects made and not freed since the collector last ran.
_COLLECT_AFTER = 50_000
_log = logging.getLogger(__name__)


def build(config: Config, tokenizers: TokenizerStore) -> Edge:
    """Return the application; needs a running loop."""
    metrics = Metrics()
    fleet = Fleet(
        config.workers,
        upstream_limits=Limits(
            connect_seconds=config.connect_seconds,
            first_byte_seconds=config.first_byte_seconds,
            idle_seconds=config.idle_seconds,
        ),
        view_limits=ViewLimits(
            predicted_ttl=config.predicted_ttl_seconds,
            approximate_ttl=config.approximate_ttl_seconds,
            predicted_bound=config.predicted_max_blocks,
            index_bound=config.index_max_blocks,
            replay_seconds=config.replay_seconds,
        ),
        probe_seconds=config.probe_seconds,
        prepare=tokenizers.prepare,
    )
    metrics.index = fleet.index.size
    reader = PromptReader()
    policy, weights, rng = POLICIES[config.policy], _weights(config), Random()
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
        try:
            yield
        finally:
            await fleet.close()
            await tokenizers.close()
            reader.close()

    metrics.token_checks = tokenizers.check.totals

    def rows() -> list[WorkerRow]:
        return snapshot(fleet.workers.values(), tokenizers.mode)

    bodies = BodyBudget(max(MOST_BYTES, config.max_body_bytes))
    dispatcher = Dispatcher(
        fleet,
        planner,
        metrics,
        policy=policy,
        weights=weights,
        retries=config.retries,
        hold_seconds=config.hold_seconds,
        rng=rng,
    )
    completions = Completions(
        planner, dispatcher, metrics, max_body_bytes=config.max_body_bytes, bodies=bodies
    )
    control = control_app(
        fleet,
        Explainer(fleet, planner, policy=policy, weights=weights, rng=rng),
        Exposition(metrics, rows),
        rows,
        max_body_bytes=config.max_body_bytes,
        bodies=bodies,
        lifespan=lifespan,
    )
    if config.admin_key is not None:
        control.include_router(admin_routes(fleet, config.admin_key))
    return Edge(completions, control, stopping=fleet.stop_waiting)


class Server(uvicorn.Server):
    """uvicorn's server, which calls `stopping` before it waits for the requests under way."""

    def __init__(self, config: uvicorn.Config, stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping = stopping

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop taking requests, let those under way end, and close."""
        _log.info("stopping; %d connections are open", len(self.server_state.connections))
        self._stopping()
        await super().shutdown(sockets)


def run(config: Config) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError for what cannot be opened or loaded."""
    logs.configure(config.log_level)
    tokenizers = TokenizerStore(config.tokenizer, deadline=config.tokenize_seconds)
    listening = _listen(config.host, config.port)
    # uvicorn stops on these signals and then raises them again; the process has ended well by then.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    _spare_the_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, tokenizers, listening))


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
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    return listening


async def _serve(config: Config, tokenizers: TokenizerStore, listening: socket.socket) -> None:
    host, port = listening.getsockname()[:2]
    _log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
    edge = build(config, tokenizers)
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
        ),
        edge.stopping,
    )
    await server.serve(sockets=[listening])


def _weights(config: Config) -> Weights:
    return Weights(uncached=config.uncached_weight, active=config.active_weight)
