"""Names by which the fleet may be asked for where only this machine can connect and nobody needs a key.

A page of any web site can have the site's name point to 127.0.0.1 (DNS rebinding), and the browser then lets
it read what answers there. Its requests name the site in Host: there only localhost, addresses and what an
operator allows are answered; an address in Host is none that a site could have pointed elsewhere. What
clients use, /v1/..., and what probes ask for stays as it is: proxies pass the names of their sites on.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from router.errors import HostNotAllowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.api.knocks import Knocks
    from router.proxy.forwarding import Sender
    from router.proxy.headers import Field

_OPEN = frozenset({"/health", "/ready"})
_API = "/v1/"
_LOCALHOST = "localhost"
ANY = "*"


class Hosts:
    """`address` is the one listened on. Names that are `allowed` are asked for on every address.

    `knocks` tells of who asks by another name.
    """

    __slots__ = ("_allowed", "_checks", "_knocks")

    def __init__(self, address: str, allowed: Sequence[str], knocks: Knocks, *, keys: bool) -> None:
        self._knocks = knocks
        self._allowed = frozenset(map(_name, allowed))
        self._checks = ANY not in allowed and (bool(allowed) or (is_loopback(address) and not keys))

    def check(self, path: str, fields: Sequence[Field], sender: Sender) -> None:
        """Raise HostNotAllowed for a path of the control surface that is asked for by a wrong name."""
        if self._checks and path not in _OPEN and not path.startswith(_API):
            for field in fields:
                if field[0] == b"host":
                    name = _name(field[1].decode("latin-1"))
                    self._check(name, fields, sender)

    def _check(self, name: str, fields: Sequence[Field], sender: Sender) -> None:
        if name not in self._allowed and not _cannot_be_pointed_elsewhere(name):
            self._knocks.refused(f"{sender.named(fields)} as {name!r:.100}")
            raise HostNotAllowed(
                f"the fleet is not shown under the name {name!r:.200}: expected an address such as "
                "127.0.0.1, localhost, or a name that --allowed-host gives"
            )


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to an address. Raises ValueError for what is none."""
    one = ip_address(address.partition("%")[0])
    mapped = one.ipv4_mapped if isinstance(one, IPv6Address) else None
    return (mapped or one).is_loopback


def _name(host: str) -> str:
    """Return the name or address in a Host field, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name = host if host.count(":") > 1 else host.partition(":")[0]
    return name.rstrip(".").lower()


def _cannot_be_pointed_elsewhere(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return name == _LOCALHOST or name.endswith(f".{_LOCALHOST}")
    return True
