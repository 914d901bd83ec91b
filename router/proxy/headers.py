"""What of a message's head may pass, and how a request's head is written.

Hop-by-hop fields speak about one connection and end there (RFC 9110, 7.6.1), in both directions. What
we write ourselves cannot be split: a CR, LF or NUL in a method, target or field is refused, never sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    Field = tuple[bytes, bytes]  # name in lower case, value

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

# Values of connection that name no other field.
_PLAIN_OPTIONS = frozenset({b"close", b"keep-alive", b"Keep-Alive", b"Close"})

# What the router says of itself in its answers; nobody else may.
_OURS = b"x-kv-router-"
_X = ord("x")

# Methods whose requests carry no content-length when they have no body (RFC 9110, 8.6).
_WITHOUT_CONTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"TRACE"})


def answer_headers(headers: Iterable[Field], extra: Iterable[Field] = ()) -> list[Field]:
    """Return the fields of a worker's answer that go on to the client, then `extra`.

    `extra` are x-... fields: those, and every x-kv-router-*, are the router's word and never the worker's.
    """
    kept = _passing(headers)
    for name, _ in kept:
        if name[0] == _X:  # few answers have any: looking more closely costs them nothing
            return laid_over([field for field in kept if not field[0].startswith(_OURS)], extra)
    kept += extra
    return kept


def laid_over(headers: Iterable[Field], ours: Iterable[Field]) -> list[Field]:
    """Return `headers` without the fields that `ours` sets anew, then `ours`."""
    names = {name for name, _ in ours}
    kept = [field for field in headers if field[0] not in names]
    kept += ours
    return kept


def without_named(fields: list[Field], options: bytes) -> list[Field]:
    """Return `fields` without those that a Connection field names."""
    if options in _PLAIN_OPTIONS:
        return fields
    named = {option.strip().lower() for option in options.split(b",")}
    return [field for field in fields if field[0] not in named]


def _passing(headers: Iterable[Field]) -> list[Field]:
    kept: list[Field] = []
    options: list[bytes] = []
    for field in headers:
        name = field[0]
        if name not in HOP_BY_HOP:
            kept.append(field)
        elif name == b"connection":
            options.append(field[1])
    return without_named(kept, b",".join(options)) if options else kept


def request_head(
    method: bytes, target: bytes, ours: Iterable[bytes], headers: Iterable[Field], length: int
) -> bytes:
    """Return the head of a request with `length` bytes of body; `ours` are lines, Host among them.

    Costs about 1 us. Raises BadRequest when anything in it would split a line.
    """
    lines = [method + b" " + target + b" HTTP/1.1", *ours]
    if length or method not in _WITHOUT_CONTENT:
        lines.append(b"content-length: " + str(length).encode())
    lines += map(b": ".join, headers)
    lines.append(b"\r\n")
    head = joined(lines)
    if head is None or b" " in target:
        raise BadRequest("the request target or a header holds a character that must not be there")
    return head


def joined(lines: list[bytes]) -> bytes | None:
    """Return the lines of a head, the last of which is a bare CRLF, as bytes; None if one would be split."""
    head = b"\r\n".join(lines)
    count = len(lines)
    if head.count(b"\n") != count or head.count(b"\r") != count or b"\0" in head:
        return None
    return head


def ends_with_connection(headers: Iterable[Field]) -> bool:
    """Return True when only the end of the connection ends such an answer's body (RFC 9112, 6.3)."""
    coding = b""
    for name, value in headers:
        if name == b"content-length":
            return False
        if name == b"transfer-encoding":
            coding = value
    return coding.rpartition(b",")[2].strip().lower() != b"chunked"
