"""Where a worker is: the parts of its URL, checked once and made ready to be written into requests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from router.discreet import discreet
from router.errors import ConfigError

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """`authority` is the Host header; `prefix` stands before every target, without a slash at its end."""

    host: str
    port: int
    secure: bool
    authority: bytes
    prefix: bytes


def parse_origin(url: str) -> Origin:
    """Take an http:// or https:// URL apart; raises ConfigError for anything a request cannot go to."""
    try:
        parts = urlsplit(url)
        port = parts.port
        authority = parts.netloc.encode("ascii")
        prefix = parts.path.rstrip("/").encode("ascii")
    except ValueError as error:
        raise _wrong(url) from error
    extras = parts.query or parts.fragment or "@" in parts.netloc
    if (
        parts.scheme not in _DEFAULT_PORTS
        or not parts.hostname
        or extras
        or not _is_plain(authority + prefix)
    ):
        raise _wrong(url)
    port = _DEFAULT_PORTS[parts.scheme] if port is None else port
    return Origin(parts.hostname, port, parts.scheme == "https", authority, prefix)


def _is_plain(text: bytes) -> bool:
    return re.fullmatch(rb"[!-~]*", text) is not None  # visible ASCII


def _wrong(url: str) -> ConfigError:
    return ConfigError(
        f"{discreet(url)!r} is not a worker's URL: expected http://host:port or https://host:port"
    )
