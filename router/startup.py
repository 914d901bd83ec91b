"""What is opened and loaded before the loop runs: what is wrong there is one line, and nothing has begun."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from socket import socket
from typing import TYPE_CHECKING

from router.errors import ConfigError
from router.fleet.discovery.sources import sources_of
from router.front import Front
from router.listening import listen
from router.prompts.store import TokenizerStore
from router.share.allowances import Allowances
from router.share.company import check_share
from router.share.team import Team
from router.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.config import Config
    from router.fleet.discovery.wanted import Source
    from router.layers import Flags
    from router.share.seat import Seat

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Startup:
    """`flags` still hold when the settings are read again. `team`: it is that of one of several processes."""

    config: Config
    flags: Flags
    sources: Sequence[Source]
    front: Front
    witness: Witness
    tokenizers: TokenizerStore
    listening: socket
    team: Team | None


def opened(config: Config, flags: Flags, seat: Seat | None, line: socket | None) -> Startup:
    """Open everything. Raises ConfigError for what cannot be opened or loaded."""
    check_share(config)
    _check_picking(config)
    sources = sources_of(config, os.environ)
    if not config.workers and not config.worker_allow and not sources:
        _log.warning("there is no worker, and without --worker-allow none can be added")
    return Startup(
        config=config,
        flags=flags,
        sources=sources,
        front=Front(config) if seat is None else Front(config, Allowances(seat.limits), seat.keys()),
        witness=Witness(config, None if seat is None else seat.index),
        tokenizers=TokenizerStore(config.tokenizer, deadline=config.tokenize_seconds),
        listening=_listening(config, seat),
        team=None if seat is None or line is None else Team(seat, line),
    )


def _check_picking(config: Config) -> None:
    """Raise ConfigError where endpoints are to be picked and what Envoy speaks is not installed."""
    if config.epp_port:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is said in the router's own lines
        try:
            import router.epp.server  # noqa: F401, PLC0415 - an extra, which few need
        except ImportError as error:
            raise ConfigError(f"--epp-port: {error.name} is not installed: expected kv-router[epp]") from None


def _listening(config: Config, seat: Seat | None) -> socket:
    if seat is None:
        return listen(config.host, config.port)
    return socket(fileno=seat.listening[seat.index])
