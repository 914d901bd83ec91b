"""What settings must be together: every rule that is about more than one of them, and says so in one line."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from router.errors import ConfigError, raise_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from router.config import Config


def check_together(config: Config) -> None:
    """Raise ConfigError, with a line for each rule that does not hold."""
    raise_all([ConfigError(line) for line in (*no_worker(config), *contradictions(config), *lacking(config))])


def no_worker(config: Config) -> Iterator[str]:
    """Yield a line when there can be no worker at all."""
    elsewhere = config.worker_file is not None or config.discover != "off" or config.admin_key is not None
    if not config.workers and not elsewhere:
        yield (
            "no worker given: expected --worker URL, KV_ROUTER_WORKER, or workers in a --config file "
            "(or --worker-file, --discover, or --admin-key, to add them later)"
        )


def contradictions(config: Config) -> Iterator[str]:
    """Yield a line for each rule of what stands in one place, as a certificate and its key do."""
    if config.processes > 1 and any(worker.bind for worker in config.workers):
        yield "bind=true: expected --processes 1, since one process only can have that address"
    for url, times in Counter(worker.url.rstrip("/") for worker in config.workers).items():
        if times > 1:
            yield f"worker {url} given {times} times: expected each --worker URL once"
    for path, times in Counter(limits.path for limits in config.route_limits).items():
        if times > 1:
            yield f"--route-limit {path} given {times} times: expected each route once, with all its limits"
    if config.epp_port and config.epp_port == config.port:
        yield f"--epp-port {config.epp_port}: expected another port than --port"
    if config.tls_cert is None:
        if config.tls_key is not None:
            yield "--tls-key: expected --tls-cert, too"
        if config.tls_client_ca is not None:
            yield "--tls-client-ca: expected --tls-cert, too"


def lacking(config: Config) -> Iterator[str]:
    """Yield a line for each setting without the one it needs, which is often given in another place."""
    if config.discover == "kubernetes" and config.kubernetes_selector is None:
        yield "--discover kubernetes: expected --kubernetes-selector, such as app=vllm, too"
    if config.protect_metrics == "on" and config.api_keys is None and not config.api_key:
        yield "--protect-metrics on: expected --api-keys or --api-key, too, since no client has a key"
