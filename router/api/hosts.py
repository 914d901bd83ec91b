"""Names by which the fleet may be asked for where only this machine can connect and nobody needs a key.

A page of any web site can have the site's name point to 127.0.0.1 (DNS rebinding), and the browser then lets
it read what answers there. Its requests name the site in Host: there only loopback's own names are answered,
and what an operator allows. What clients use, /v1/..., and what probes ask for stays as it is: proxies pass
the names of their sites on.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from router.errors import HostNotAllowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from router.proxy.headers import Field

_OPEN = frozenset({"/health", "/ready"})
_API = "/v1/"
_LOCALHOST = "localhost"
ANY = "*"


class Hosts:
    """`address` is the one listened on. Names that are `allowed` are asked for on every address."""

    __slots__ = ("_allowed", "_checks")

    def __init__(self, address: str, allowed: Sequence[str], *, keys: bool) -> None:
        self._allowed = frozenset(map(_name, allowed))
        self._checks = ANY not in allowed and (bool(allowed) or (is_loopback(address) and not keys))

    def check(self, path: str, fields: Iterable[Field]) -> None:
        """Raise HostNotAllowed for a path of the control surface that is asked for by a wrong name."""
        if self._checks and path not in _OPEN and not path.startswith(_API):
            for field in fields:
                if field[0] == b"host":
                    self._check(field[1].decode("latin-1"))

    def _check(self, host: str) -> None:
        name = _name(host)
        if name not in self._allowed and not _is_of_this_machine(name):
            raise HostNotAllowed(
                f"the fleet is not shown under the name {name!r:.200}: expected localhost, an address such "
                "as 127.0.0.1, or a name that --allowed-host gives"
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


def _is_of_this_machine(name: str) -> bool:
    try:
        return is_loopback(name)
    except ValueError:
        return name == _LOCALHOST or name.endswith(f".{_LOCALHOST}")
