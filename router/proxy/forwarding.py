"""What workers are told about who asked: X-Forwarded-For, -Proto and -Host, and what is kept from them.

Anybody can write these fields. They are taken from addresses that the operator trusts, other proxies, and
added to; what anybody else says of itself is dropped, and said anew. What a connection says of its client is
made once per connection.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from router.proxy.headers import HOP_BY_HOP, without_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from router.proxy.headers import Field

    Network = IPv4Network | IPv6Network

# Who may ask: a client's key, which is the router's to check and nobody else's to see.
CREDENTIALS = frozenset({b"authorization", b"x-api-key"})

_FOR, _PROTO, _HOST, _FORWARDED = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"forwarded"
_REQUEST_ID = b"x-request-id"
# Written anew for the worker, or settled with the client already (expect).
_SET_ANEW = HOP_BY_HOP | {b"host", b"content-length", b"expect", _REQUEST_ID, _FOR, _PROTO, _HOST, _FORWARDED}
# Claims of the same kind that the router does not make itself.
_CLAIMS = frozenset(
    {
        b"x-forwarded-port",
        b"x-forwarded-prefix",
        b"x-forwarded-scheme",
        b"x-forwarded-server",
        b"x-forwarded-ssl",
        b"x-real-ip",
    }
)


class Forwarding:
    """`trusted` are the networks of proxies; `credentials`: clients' keys are the workers' to check."""

    __slots__ = ("_dropped", "_trusted")

    def __init__(self, trusted: Sequence[Network] = (), *, credentials: bool = True) -> None:
        self._trusted = tuple(trusted)
        dropped = _SET_ANEW if credentials else _SET_ANEW | CREDENTIALS
        self._dropped = dropped | _CLAIMS, dropped  # of others, of those who are trusted

    def sender(self, address: str | None, scheme: str) -> Sender:
        """Return who is at the other end of one connection; `address` is None on a Unix socket."""
        trusted = bool(self._trusted) and self._trusts(address)
        return Sender(_plain(address), scheme.encode(), self._dropped[trusted], trusted)

    def _trusts(self, address: str | None) -> bool:
        if address is None:
            return True
        one = ip_address(_plain(address).decode().partition("%")[0])
        return any(one in network for network in self._trusted)


@lru_cache(maxsize=4096)
def _plain(address: str | None) -> bytes:
    """Return an address as text; IPv4 as such also where a socket of both families shows it as IPv6."""
    if address is None:
        return b"unknown"  # RFC 7239, 6.2
    one = ip_address(address)
    mapped = one.ipv4_mapped if isinstance(one, IPv6Address) else None
    return str(mapped or one).encode()


class Sender:
    """The client's end of one connection."""

    __slots__ = ("_address", "_dropped", "_fields", "_trusted")

    def __init__(self, address: bytes, scheme: bytes, dropped: frozenset[bytes], trusted: bool) -> None:
        self._address = address
        self._dropped = dropped
        self._trusted = trusted
        self._fields: tuple[Field, Field] = (_FOR, address), (_PROTO, scheme)

    def onward(self, fields: Iterable[Field]) -> tuple[list[Field], bytes]:
        """Return the fields of a request that go on to a worker, and the request's id, b"" if it has none.

        Host, length and id are left out, to be set anew. About 1 us for ten fields.
        """
        dropped = self._dropped
        kept: list[Field] = []
        noted: dict[bytes, bytes] = {}
        for field in fields:
            name = field[0]
            if name not in dropped:
                kept.append(field)
            elif name in noted:
                noted[name] += b", " + field[1]
            else:
                noted[name] = field[1]
        options = noted.get(b"connection")
        if options is not None:
            kept = without_named(kept, options)
        host = noted.get(b"host", b"")
        if self._trusted:
            kept += self._added_to(noted)
            host = noted.get(_HOST, host)
        else:
            kept += self._fields
        if host:
            kept.append((_HOST, host))
        return kept, noted.get(_REQUEST_ID, b"")

    def named(self, fields: Iterable[Field]) -> str:
        """Return the address of who asks, for the log; of a trusted proxy also for whom, as it says."""
        address = self._address.decode()
        said = [value.decode("latin-1") for name, value in fields if self._trusted and name == _FOR]
        return f"{', '.join(said):.200} by {address}" if said else address

    def _added_to(self, noted: dict[bytes, bytes]) -> list[Field]:
        """Return what a trusted proxy has said, with the proxy itself added."""
        address = self._address
        (_, scheme) = self._fields[1]
        before = noted.get(_FOR)
        said = [
            (_FOR, address if before is None else b"%b, %b" % (before, address)),
            (_PROTO, noted.get(_PROTO, scheme)),
        ]
        if _FORWARDED in noted:  # RFC 7239
            node = b'"[%b]"' % address if b":" in address else address
            said.append((_FORWARDED, b"%b, for=%b;proto=%b" % (noted[_FORWARDED], node, scheme)))
        return said
