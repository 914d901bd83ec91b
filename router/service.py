"""The process that serves, from its settings to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from typing import TYPE_CHECKING

import uvicorn

from router.api.page import has_page
from router.app import build
from router.collector import spare_the_collector
from router.hangup import take_hangups
from router.listening import shown
from router.observe import logs
from router.proxy.accepting import Loop
from router.proxy.edge import EdgeProtocol
from router.reload import Reload
from router.server import Server, Stop
from router.startup import opened
from router.variables import warn_of_strays

if TYPE_CHECKING:
    from socket import socket

    import grpc

    from router.api.edge import Edge
    from router.app import App
    from router.config import Config
    from router.epp.picker import Picker
    from router.layers import Flags
    from router.share.seat import Seat
    from router.startup import Startup

_log = logging.getLogger(__name__)


def run(config: Config, flags: Flags, seat: Seat | None = None, line: socket | None = None) -> None:
    """Serve until SIGTERM or SIGINT; `flags` still hold when the settings are read again.

    One of several processes has a `seat`, and a `line` to its parent. Raises ConfigError for what cannot be
    opened or loaded.
    """
    logs.configure(config.log_level, "" if seat is None else f"[{seat.index}] ", config.log_format)
    if seat is None:
        warn_of_strays(os.environ)
    startup = opened(config, flags, seat, line)
    stop = Stop()
    spare_the_collector()
    _open_as_many_files_as_allowed()
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(_serve(startup, stop))


def _open_as_many_files_as_allowed() -> None:
    """Raise the soft limit on open files, often 1024, to the hard one: a request under way holds two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(startup: Startup, stop: Stop) -> None:
    config, team, listening = startup.config, startup.team, startup.listening
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(logs.log_lost_exception)
    if team is not None:
        await team.join(stop.as_if_told)
    page = has_page(config.dashboard, listening.getsockname()[0])
    app = build(startup, page=page)
    reload = await _reload(startup, app)
    watch = asyncio.create_task(reload.watch())
    server = _server(startup, app.edge)
    picking = await _picking(config, app.picker, startup)
    if team is None:
        _log.info("listening on %s", shown(listening, startup.front.scheme))
    if page and team is None:
        _log.info("the fleet is shown at /")
    stop.server = server
    server.should_exit = stop.asked
    await server.serve(sockets=[listening])
    watch.cancel()
    if picking is not None:
        await picking.stop(config.grace_seconds)


async def _reload(startup: Startup, app: App) -> Reload:
    """Return what reads the settings again, on SIGHUP from now on."""
    reload = Reload(startup.config, app.live, startup.flags, os.environ)
    team = startup.team
    if team is not None:
        team.keep_good(startup.front.keys, reload)
    take_hangups(asyncio.get_running_loop(), reload.ask)
    if team is not None and team.seat.late:
        await reload.now()  # the others may have taken up other settings meanwhile
    return reload


def _server(startup: Startup, edge: Edge) -> Server:
    config, tls = startup.config, startup.front.tls
    return Server(
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
        team=startup.team,
    )


async def _picking(config: Config, picker: Picker, startup: Startup) -> grpc.aio.Server | None:
    """Begin to pick endpoints, if that is wanted. Raises ConfigError where it cannot listen."""
    if not config.epp_port:
        return None
    from router.epp.server import started  # noqa: PLC0415 - an extra, which few need

    tls, shared = startup.front.tls, startup.team is not None
    return await started(picker, config.host, config.epp_port, tls, shared=shared)
