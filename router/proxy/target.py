"""What a request line asks for, in the forms that a server takes (RFC 9112, 3.2): path or absolute URI."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

import httptools

from router.proxy.check import GARBLED, Refused

TOO_LONG = b"414 URI Too Long", "the request target is too long"
# httptools counts in 16 bits.
_MOST_BYTES = 0xFFFF
# Most requests ask for one of a few targets; what a client makes up must not fill the memory.
_REMEMBERED_BYTES = 256
_SCHEMES = (b"http", b"https")
_NOT_ESCAPED = re.compile(rb"%(?![0-9A-Fa-f]{2})|%00")


class Target(NamedTuple):
    """`path` is decoded and `raw_path` is not; `whole` is raw path and query.

    `authority` is the host of an absolute URI: it stands before the Host header.
    """

    path: str
    raw_path: bytes
    query: bytes
    whole: bytes
    authority: bytes | None


def read_target(url: bytes) -> Target:
    """Return what a request line asks for; raises Refused."""
    if len(url) <= _REMEMBERED_BYTES:
        return _remembered(url)
    if len(url) > _MOST_BYTES:
        raise Refused(TOO_LONG)
    return _read(url)


def _read(url: bytes) -> Target:
    parts = httptools.parse_url(url)
    raw_path = parts.path or b"/"
    if raw_path[:1] != b"/" or parts.fragment is not None or _NOT_ESCAPED.search(raw_path):
        raise Refused(GARBLED)
    path, query = raw_path.decode("ascii"), parts.query or b""
    whole, authority = url, None
    if parts.schema is not None:
        whole = b"%b?%b" % (raw_path, query) if query else raw_path
        authority = _authority(parts)
    return Target(unquote(path) if "%" in path else path, raw_path, query, whole, authority)


_remembered = lru_cache(maxsize=1024)(_read)


def _authority(parts: httptools.parser.url_parser.URL) -> bytes:
    if parts.schema.lower() not in _SCHEMES or parts.userinfo is not None or not parts.host:
        raise Refused(GARBLED)
    host: bytes = b"[%b]" % parts.host if b":" in parts.host else parts.host
    return host if parts.port is None else b"%b:%d" % (host, parts.port)
