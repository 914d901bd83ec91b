"""A ZMQ address of an engine's publisher, as text and as something to reckon with.

Rule of the room: nothing here opens a socket; an address that cannot be used raises ValueError saying
what was expected, or becomes None, and the caller says whose address it was.

Facts (KV_EVENTS 1; SGLang 0.5.23, vLLM 0.32): port of DP rank r = base port + r, for events and for replay;
an engine binds only when its address holds `*`, `::` or `0.0.0.0`, and connects otherwise; ipc always binds.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace

WILDCARDS = ("*", "0.0.0.0", "::")
MOST_PORT = 65535
# The kernel's limit for a Unix socket path, less its closing NUL.
MOST_PATH_BYTES = 107
EXPECTED = "tcp://host:port (an IPv6 host in brackets) or ipc://path"

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`tcp://host:port` (host without brackets) or, with an empty host and port 0, `ipc://path`."""

    host: str
    port: int
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Read an address; ValueError, its text what was expected, for anything else."""
        scheme, mark, rest = text.partition("://")
        if mark and scheme == "tcp":
            return cls._tcp(rest)
        if mark and scheme == "ipc" and 0 < len(rest.encode(errors="replace")) <= MOST_PATH_BYTES:
            return cls(host="", port=0, path=rest)
        raise ValueError(EXPECTED)

    @classmethod
    def _tcp(cls, rest: str) -> Endpoint:
        host, _, port = rest.rpartition(":")
        if not (port.isascii() and port.isdigit() and len(port) <= len(str(MOST_PORT))):
            raise ValueError(f"{EXPECTED}, with a port from 1 to {MOST_PORT}")
        return cls.tcp(host, int(port))

    @classmethod
    def tcp(cls, host: str, port: int) -> Endpoint:
        """Build a tcp address, the host with or without brackets; ValueError as `parse`."""
        if not 1 <= port <= MOST_PORT:
            raise ValueError(f"a port from 1 to {MOST_PORT}")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        bracketed = bare != host
        # Engines write the IPv6 wildcard without brackets too; any other bare IPv6 address is ambiguous.
        if bare in WILDCARDS or (_is_ipv6(bare) if bracketed else _NAME.fullmatch(bare)):
            return cls(host=bare, port=port)
        raise ValueError(EXPECTED)

    def at_rank(self, rank: int) -> Endpoint | None:
        """Return the address of DP rank `rank`; None past the last port, and for ipc above rank 0."""
        if rank == 0:
            return self
        if not self.host or self.port + rank > MOST_PORT:
            return None
        return replace(self, port=self.port + rank)

    def with_host(self, host: str) -> Endpoint:
        """Return the address to connect to: `host` in the place of a wildcard."""
        return replace(self, host=host) if self.host in WILDCARDS else self

    def to_bind(self) -> Endpoint:
        """Return the address to bind so that an engine that connects to this one arrives.

        The host an engine was given is a name of our machine as the engine sees it, which need not be an
        address of ours (a service name, a translated address); only a loopback one is kept.
        """
        return self if not self.host or is_loopback(self.host) else replace(self, host="*")

    @property
    def engine_binds(self) -> bool:
        """Whether an engine given this address binds it; it connects otherwise."""
        # The engines look for these marks anywhere, so a bracketed `[fd00::7]` counts as well.
        return not self.host or any(mark in self.host for mark in WILDCARDS)

    def __str__(self) -> str:
        if not self.host:
            return f"ipc://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"


def address_of(text: str, rank: int) -> Endpoint | None:
    """Return the address of DP rank `rank` out of what an operator wrote.

    `text` is rank 0's address, the others' ports follow it; or the ranks' own addresses, `|` between them.
    None where it has none for the rank; ValueError as `Endpoint.parse`.
    """
    own = [Endpoint.parse(part) for part in text.split("|")]
    if len(own) == 1:
        return own[0].at_rank(rank)
    return own[rank] if rank < len(own) else None


def is_loopback(host: str) -> bool:
    """Whether `host` means the machine itself, wherever it is used."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
