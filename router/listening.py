"""The sockets that clients connect to, which take connections before the app has started."""

from __future__ import annotations

import socket

from router.errors import ConfigError
from router.proxy.keepalive import keep_alive

_BACKLOG = 4096


def listen(host: str, port: int) -> socket.socket:
    """Return a socket of this router's own. Raises ConfigError."""
    return _bound(host, port, shared=False, listens=True)


def bind_together(host: str, port: int, count: int) -> list[socket.socket]:
    """Return so many sockets on one port; the system divides connections among those that listen.

    The first one does, the others will when somebody serves them. Raises ConfigError, also where another
    router has the port, which the system would let in on it.
    """
    alone = _bound(host, port, shared=False, listens=True)
    chosen = alone.getsockname()[1]
    alone.close()
    return [_bound(host, chosen, shared=True, listens=not number) for number in range(count)]


def check_free(host: str, port: int, flag: str) -> None:
    """Raise ConfigError where a port that processes will share is another router's."""
    try:
        _bound(host, port, shared=False, listens=True).close()
    except ConfigError:
        raise taken(host, port, flag) from None


def taken(host: str, port: int, flag: str) -> ConfigError:
    """Return what is said of a port that cannot be had."""
    return ConfigError(f"cannot listen on {place(host, port)} for {flag}")


def shown(listening: socket.socket, scheme: str) -> str:
    """Return the URL of a socket."""
    return f"{scheme}://{place(*listening.getsockname()[:2])}"


def place(host: str, port: int) -> str:
    """Return both as URLs have them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bound(host: str, port: int, *, shared: bool, listens: bool) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        keep_alive(made)
        made.bind(address)
        if listens:
            made.listen(_BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    return made
