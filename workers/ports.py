"""Ports of one's own: consecutive ones for the ranks of a worker, any free one where 0 is asked for."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import zmq

if TYPE_CHECKING:
    from collections.abc import Callable

Zmq = TypeVar("Zmq", bound="zmq.Socket[Any]")
T = TypeVar("T")
_ATTEMPTS = 50
_AGAIN_SECONDS = 5.0
_RETRY_SECONDS = 0.01


def bind_range(make: Callable[[], Zmq], host: str, base: int, count: int) -> tuple[int, list[Zmq]]:
    """Bind `count` sockets to consecutive ports and return the first port and the sockets.

    Base 0 lets the system choose the first port, and chooses again when one after it is taken. Raises
    OSError when the ports asked for are taken.
    """
    for _ in range(_ATTEMPTS if base == 0 and count > 1 else 1):
        sockets: list[Zmq] = []
        try:
            return _bind_all(sockets, make, host, base, count), sockets
        except zmq.ZMQError as error:
            problem = error.strerror
            for opened in sockets:
                opened.close(linger=0)
    message = f"cannot bind ports {base} to {base + count - 1} on {host}: {problem}"
    raise OSError(message)


def _bind_all(sockets: list[Zmq], make: Callable[[], Zmq], host: str, base: int, count: int) -> int:
    for rank in range(count):
        opened = make()
        sockets.append(opened)
        opened.ipv6 = ":" in host
        name = f"[{host}]" if opened.ipv6 else host
        opened.bind(f"tcp://{name}:{base + rank if base else 0}")
        base = base or bound_port(opened)
    return base


def bound_port(opened: zmq.Socket[Any]) -> int:
    """Return the tcp port a ZMQ socket was bound to last."""
    endpoint = opened.getsockopt(zmq.LAST_ENDPOINT)
    return int(bytes(endpoint).rsplit(b":", 1)[1])


def listen(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket; port 0 for any. Raises OSError when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        message = f"cannot bind port {port} on {host}: {error.strerror}"
        raise OSError(message) from error


async def bind_again(bind: Callable[[], T]) -> T:
    """Return what `bind` returns for ports that were closed just now and are free a moment later.

    Raises its OSError when they are still taken after five seconds.
    """
    deadline = monotonic() + _AGAIN_SECONDS
    while monotonic() < deadline:
        with suppress(OSError):
            return bind()
        await asyncio.sleep(_RETRY_SECONDS)
    return bind()
