"""`kv-router record`: the event streams of workers into a record, without serving anybody."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from router.assembly import fleet_of
from router.derived import rules_of
from router.front import Front
from router.hangup import take_hangups
from router.observe import logs
from router.proxy.upstream import Upstream
from router.variables import warn_of_strays
from router.witness import Witness

if TYPE_CHECKING:
    from router.config import Config
    from router.engines.description import Description

_log = logging.getLogger(__name__)


def run(config: Config) -> None:
    """Record until SIGTERM or SIGINT. Raises ConfigError when nothing can be written."""
    logs.configure(config.log_level, form=config.log_format)
    warn_of_strays(os.environ)
    front, witness = Front(config), Witness(config)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_record(config, front, witness))


async def _record(config: Config, front: Front, witness: Witness) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.set_exception_handler(logs.log_lost_exception)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    take_hangups(loop, partial(_log.info, "SIGHUP: there is nothing to read again; recording goes on"))
    fleet = fleet_of(
        config,
        rules_of(config),
        prepare=_prepare,
        connect=partial(Upstream, tls=front.worker_tls, key=config.worker_api_key),
        parts=witness.parts,
    )
    fleet.start()
    _log.info("recording %d workers in %s", len(fleet.workers), config.record)
    try:
        await stop.wait()
    finally:
        await witness.close(fleet)
        await fleet.close()


async def _prepare(_said: Description, _upstream: Upstream) -> None:
    """Nothing is tokenised here."""
