"""What is to be found in a cluster, and how the API server is reached."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from router.discreet import discreet
from router.errors import ConfigError
from router.named_file import read_named
from router.proxy.origin import parse_origin

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["pods", "endpointslices"]
EVERY = "*"
# Where Kubernetes puts what a pod needs to speak with the API server.
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_MOST_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Seek:
    """Which workers: objects of a `kind` that `selector` takes, in `namespaces` ("*": all).

    `port` is a number or a port's name, None for the first one that is declared. `kv_port` and
    `replay_port` are those of rank 0, None: the worker says. `role_label` and `model_label` are names of
    labels, None for none.
    """

    kind: Kind = "pods"
    selector: str = ""
    namespaces: tuple[str, ...] = (EVERY,)
    port: str | None = None
    kv_port: int | None = None
    replay_port: int | None = None
    role_label: str | None = None
    model_label: str | None = None


@dataclass(frozen=True, slots=True)
class Api:
    """`url` of the API server; paths of the token and of the authority's certificate, both read again."""

    url: str
    token: str | None = None
    ca: str | None = None


def api_of(url: str | None, token: str | None, ca: str | None, environ: Mapping[str, str]) -> Api:
    """Return how to reach the API server: as told, and otherwise as a pod is told by its cluster.

    A server that is named gets only the token that is named, too. Raises ConfigError outside of a cluster.
    """
    if url is not None:
        _check(url)
        return Api(url, token, ca)
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("--discover kubernetes: this is no pod: expected --kubernetes-api URL, too")
    shown = f"[{host}]" if ":" in host else host
    return Api(f"https://{shown}:{port}", token or f"{ACCOUNT}/token", ca or f"{ACCOUNT}/ca.crt")


def _check(url: str) -> None:
    try:
        parse_origin(url)
    except ConfigError:
        expected = "http://host:port or https://host:port"
        raise ConfigError(f"--kubernetes-api: expected {expected}, got {discreet(url)!r:.80}") from None


def own_namespace(account: str = ACCOUNT) -> str:
    """Return the namespace that this pod is in. Raises ConfigError outside of a cluster."""
    try:
        return read_named(Path(account, "namespace"), _MOST_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(
            "--discover kubernetes: this is no pod: expected --kubernetes-namespace, too"
        ) from None
