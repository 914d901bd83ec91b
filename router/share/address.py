"""Where routers meet: `--share redis://[[user]:password@]host[:port][/db]`; its password is never shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

_URL = (
    r"(redis|rediss|valkey|valkeys)://([^@/?#\s]*@)?([\w.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(/[0-9]{0,5})?"
)
_PORT = 6379


@dataclass(frozen=True, slots=True)
class Address:
    """A server. The database in the URL is not looked at: messages are the same in all of them."""

    host: str
    port: int
    secure: bool
    user: str | None
    password: str | None = field(repr=False)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(url: str) -> Address:
    """Read the URL. Raises ValueError for what is none."""
    if not re.fullmatch(_URL, url):
        raise ValueError("no address of a Redis or Valkey server")
    parts = urlsplit(url)
    port = _PORT if parts.port is None else parts.port
    if not parts.hostname or not port:
        raise ValueError("no host or port")
    user, password = (unquote(each) if each else None for each in (parts.username, parts.password))
    return Address(parts.hostname, port, parts.scheme in {"rediss", "valkeys"}, user, password)
