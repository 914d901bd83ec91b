"""What stands before the routes: TLS, clients' keys, and whom to believe; read again on SIGHUP."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from router.api.door import Door
from router.api.keyfile import KeyFile
from router.api.keys import Keyring
from router.api.routes import ROUTED, is_other
from router.api.wishes import wishes_of
from router.errors import ConfigError, raise_all
from router.proxy.forwarding import Forwarding
from router.proxy.tls import ServerTls, TlsFiles, trusting

if TYPE_CHECKING:
    from router.api.keys import Keys
    from router.config import Config
    from router.share.allowances import Allowances


class Front:
    """Raises ConfigError, one line, for what cannot be read. What is not asked for is None.

    `tls` is towards clients, `worker_tls` whom to trust among workers, None for the system's authorities.
    `wishes`: what clients may say about the routing of their requests. `limits`: where the processes of a
    router count what clients use. `last`: the keys they have held last, which hold on if
    there is something wrong with the file by now.
    """

    __slots__ = ("door", "forwarding", "keys", "ring", "tls", "wishes", "worker_tls")

    def __init__(self, config: Config, limits: Allowances | None = None, last: Keys | None = None) -> None:
        check_routes(config)
        allowed = config.allow_policy_header == "on"
        self.wishes = wishes_of(config.policy, config.session_header, allowed=allowed)
        self.tls = _tls(config)
        self.worker_tls = None if config.worker_ca is None else trusting("--worker-ca", config.worker_ca)
        self.ring = Keyring() if limits is None else Keyring(limits.bucket)
        self.keys: KeyFile | None = None
        self.door: Door | None = None
        if config.api_keys is not None or config.api_key:
            self.keys = KeyFile(self.ring, config.api_keys, config.api_key)
            self.keys.begin(last)
            self.door = Door(self.ring, perf_counter, metrics_need_key=config.protect_metrics == "on")
        theirs = self.door is None or config.forward_authorization == "on"
        self.forwarding = Forwarding(
            config.forwarded_allow, credentials=theirs and config.worker_api_key is None
        )

    @property
    def scheme(self) -> str:
        """What clients' URLs begin with."""
        return "http" if self.tls is None else "https"

    async def reload(self) -> None:
        """Read certificates and keys again, in a thread; what is wrong is logged and changes nothing."""
        if self.tls is not None:
            await asyncio.to_thread(self.tls.reload)
        if self.keys is not None:
            await self.keys.reload()


def check_routes(config: Config) -> None:
    """Raise ConfigError for limits of routes that there are not."""
    paths = [limits.path for limits in config.route_limits]
    unknown = [path for path in paths if path not in ROUTED and not is_other(path)]
    said = "there is no route that workers answer of this name"
    raise_all([ConfigError(f"--route-limit {path}: {said}") for path in unknown])


def _tls(config: Config) -> ServerTls | None:
    if config.tls_cert is None:
        return None
    return ServerTls(TlsFiles(config.tls_cert, config.tls_key, config.tls_client_ca))
