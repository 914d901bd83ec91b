"""The one place where the parts are put together, and the process that serves them."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from contextlib import asynccontextmanager
from functools import partial
from socket import socket
from typing import TYPE_CHECKING

import uvicorn

from router.api.admin import admin_routes
from router.api.admission import Admission
from router.api.completions import Completions
from router.api.control import control_app
from router.api.dispatch import Dispatcher
from router.api.edge import Edge
from router.api.explain import Explainer
from router.api.page import has_page
from router.api.planner import Planner
from router.api.retries import Retries
from router.api.watch import Watch
from router.assembly import fleet_of
from router.collector import spare_the_collector
from router.derived import breaker_rules_of, capacity_of, limits_of, weights_of
from router.epp.picker import Picker
from router.errors import ConfigError
from router.fleet.allowed import Allowed
from router.fleet.discovery.discovery import Discovery
from router.fleet.discovery.reconciler import Reconciler
from router.fleet.discovery.sources import sources_of
from router.fleet.membership import Membership
from router.fleet.snapshot import each_row, snapshot
from router.front import Front
from router.listening import listen, shown
from router.live import Live
from router.observe import logs
from router.observe.decisions import Decisions
from router.observe.delay import LoopDelay
from router.observe.exposition import Exposition
from router.observe.metrics import Metrics
from router.observe.seen import Seen, look
from router.pairs.choice import Judge
from router.prompts.reader import PromptReader
from router.prompts.store import TokenizerStore
from router.proxy.accepting import Loop
from router.proxy.body import MOST_BYTES, BodyBudget
from router.proxy.descriptors import Descriptors
from router.proxy.edge import EdgeProtocol
from router.proxy.limits import ClientLimits
from router.proxy.upstream import Upstream
from router.reload import Reload
from router.server import Server, Stop
from router.share.allowances import Allowances
from router.share.company import Company, check_share
from router.share.team import Team
from router.witness import Witness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    import grpc
    from fastapi import FastAPI

    from router.config import Config
    from router.fleet.discovery.wanted import Source
    from router.fleet.fleet import Fleet
    from router.layers import Flags
    from router.observe.rows import WorkerRow
    from router.share.seat import Seat

_log = logging.getLogger(__name__)


def build(
    config: Config,
    tokenizers: TokenizerStore,
    front: Front,
    sources: Sequence[Source],
    witness: Witness,
    team: Team | None = None,
    *,
    page: bool,
) -> tuple[Edge, Live, Picker]:
    """Return the application, what of it takes other settings, and what picks; needs a running loop.

    `team`: it is that of one of several processes. `page`: with one that shows the fleet.
    """
    metrics, descriptors = Metrics(), Descriptors()
    limits, weights, breaker_rules = limits_of(config), weights_of(config), breaker_rules_of(config)
    fleet = fleet_of(
        config,
        limits,
        breaker_rules,
        prepare=tokenizers.prepare,
        connect=partial(
            Upstream,
            tls=front.worker_tls,
            key=config.worker_api_key,
            connected=metrics.stages["connect"].observe,
            starved=descriptors.missing,
        ),
        parts=witness.parts,
    )
    membership = Membership(fleet.roster, Allowed(config.worker_allow), drain_seconds=config.drain_seconds)
    reconciler = Reconciler(membership, fleet.workers, config.worker_allow)
    discovery = Discovery(reconciler, sources, config.workers)
    company = Company(config, team, fleet)
    reader = PromptReader()
    metrics.policy_failures = front.wishes.failures
    judge = Judge(fleet.index, weights, witness.random, config.pd_min_uncached)
    planner = Planner(
        fleet,
        reader,
        tokenizers,
        metrics,
        forward_input_ids=config.forward_input_ids == "on",
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        fleet.start()
        discovery.start()
        await company.start()
        delay = LoopDelay(metrics.delays.observe)
        keys = asyncio.create_task(front.keys.watch()) if front.keys is not None else None
        try:
            yield
        finally:
            delay.close()
            descriptors.close()
            if keys is not None:
                keys.cancel()
            await witness.close(fleet)
            await discovery.close()
            await membership.close()
            await fleet.close()
            await company.close()
            await tokenizers.close()
            reader.close()

    def rows() -> list[WorkerRow]:
        return company.with_others(snapshot(fleet.workers.values(), tokenizers.mode))

    bodies = BodyBudget(max(MOST_BYTES, config.max_body_bytes))
    admission = Admission(
        capacity_of(config, company.index),
        lambda rank: fleet.worker_of(rank).requests(),
        metrics.stages["wait"],
    )
    _let_see(metrics, fleet, tokenizers, admission, bodies, front, discovery)
    fleet.on_change = partial(_changed, asyncio.get_running_loop(), admission, company)
    retries = Retries(metrics, most=config.retries, share=config.retry_share, floor=config.retry_floor)
    dispatcher = Dispatcher(
        fleet,
        planner,
        metrics,
        judge,
        company.accounts,
        retries=retries,
        admission=admission,
    )
    metrics.record = witness.recorder
    completions = Completions(
        planner,
        dispatcher,
        admission,
        metrics,
        front.wishes,
        max_body_bytes=config.max_body_bytes,
        bodies=bodies,
        limits=limits,
        observers=witness.observers(),
    )
    exposition = Exposition(metrics, lambda: each_row(fleet.workers.values(), tokenizers.mode))
    sight = company.sight(exposition, rows)
    metrics.share, crew = company.share, company.crew(membership)
    control = control_app(
        fleet,
        Explainer(fleet, planner, judge, front.wishes),
        sight,
        max_body_bytes=config.max_body_bytes,
        bodies=bodies,
        lifespan=lifespan,
        page=page,
    )
    if config.admin_key is not None:
        control.include_router(admin_routes(fleet, crew, config.admin_key))
    edge = Edge(
        completions,
        control,
        _watch(config, team, fleet, completions, partial(look, sight, metrics, config.policy), front),
        leaving=fleet.leave,
        stopping=fleet.stop_waiting,
        forwarding=front.forwarding,
        limits=ClientLimits(stall_seconds=config.client_idle_seconds),
        door=front.door,
    )
    return (
        edge,
        Live(weights, limits, breaker_rules, retries, admission, membership, discovery, front, company.index),
        Picker(
            fleet,
            planner,
            dispatcher,
            admission,
            front.wishes,
            bodies=bodies,
            most_bytes=config.max_body_bytes,
        ),
    )


def _let_see(
    metrics: Metrics,
    fleet: Fleet,
    tokenizers: TokenizerStore,
    admission: Admission,
    bodies: BodyBudget,
    front: Front,
    discovery: Discovery,
) -> None:
    """Let the metrics read what others count."""
    metrics.index, metrics.serving = fleet.index.size, fleet.serving
    metrics.token_checks = tokenizers.check.totals
    metrics.discovery = discovery.failing
    metrics.waiting, metrics.turned_away = admission.waiting_for, admission.refused
    metrics.queue_limit, metrics.held_bytes = (lambda: admission.most_waiting), (lambda: bodies.held)
    if front.door is not None:
        metrics.clients = front.door.counts


def _watch(
    config: Config,
    team: Team | None,
    fleet: Fleet,
    completions: Completions,
    seen: Callable[[str], Awaitable[Seen]],
    front: Front,
) -> Watch:
    process = "" if team is None else f"{team.seat.index + 1} of {config.processes}"
    return Watch(partial(seen, process), Decisions(), fleet.roster.resets, front.door, completions)


def _changed(loop: asyncio.AbstractEventLoop, admission: Admission, company: Company) -> None:
    """Have those look again for whom it matters which workers there are."""
    company.changed()
    loop.call_soon(admission.advance)


def run(config: Config, flags: Flags, seat: Seat | None = None, line: socket | None = None) -> None:
    """Serve until SIGTERM or SIGINT; `flags` still hold when the settings are read again.

    One of several processes has a `seat`, and a `line` to its parent. Raises ConfigError for what cannot be
    opened or loaded.
    """
    logs.configure(config.log_level, "" if seat is None else f"[{seat.index}] ", config.log_format)
    check_share(config)
    sources = sources_of(config, os.environ)
    if not config.workers and not config.worker_allow and not sources:
        _log.warning("there is no worker, and without --worker-allow none can be added")
    limits = None if seat is None else Allowances(seat.limits)
    front, witness = (
        Front(config, limits, None if seat is None else seat.keys()),
        Witness(config, None if seat is None else seat.index),
    )
    tokenizers = TokenizerStore(config.tokenizer, deadline=config.tokenize_seconds)
    listening = (
        listen(config.host, config.port) if seat is None else socket(fileno=seat.listening[seat.index])
    )
    team = None if seat is None or line is None else Team(seat, line)
    stop = Stop()
    spare_the_collector()
    _open_as_many_files_as_allowed()
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(_serve(config, tokenizers, listening, front, stop, sources, flags, witness, team))


def _open_as_many_files_as_allowed() -> None:
    """Raise the soft limit on open files, often 1024, to the hard one: a request under way holds two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(
    config: Config,
    tokenizers: TokenizerStore,
    listening: socket,
    front: Front,
    stop: Stop,
    sources: Sequence[Source],
    flags: Flags,
    witness: Witness,
    team: Team | None,
) -> None:
    if team is None:
        _log.info("listening on %s", shown(listening, front.scheme))
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(logs.log_lost_exception)
    loop.add_signal_handler(signal.SIGHUP, front.reload)
    if team is not None:
        await team.join(stop.as_if_told)
    page = has_page(config.dashboard, listening.getsockname()[0])
    edge, live, picker = build(config, tokenizers, front, sources, witness, team, page=page)
    reload = Reload(config, live, flags, os.environ)
    if team is not None:
        team.keep_good(front.keys, reload)
    loop.add_signal_handler(signal.SIGHUP, reload.now)
    if team is not None and team.seat.late:
        reload.now()  # the others may have taken up other settings meanwhile
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
        team=team,
    )
    picking = await _picking(config, picker, front)
    if page and team is None:
        _log.info("the fleet is shown at /")
    stop.server = server
    server.should_exit = stop.asked
    await server.serve(sockets=[listening])
    watch.cancel()
    if picking is not None:
        await picking.stop(config.grace_seconds)


async def _picking(config: Config, picker: Picker, front: Front) -> grpc.aio.Server | None:
    """Begin to pick endpoints, if that is wanted. Raises ConfigError where it cannot be."""
    if not config.epp_port:
        return None
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is said in the router's own lines
    try:
        from router.epp.server import started  # noqa: PLC0415 - an extra, which few need
    except ImportError as error:
        raise ConfigError(f"--epp-port: {error.name} is not installed: expected kv-router[epp]") from None
    files = front.tls.files if front.tls is not None else None
    return await started(picker, config.host, config.epp_port, files)
