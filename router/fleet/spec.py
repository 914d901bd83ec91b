"""What the operator says about one worker: `URL,kv=tcp://host:port,block-size=16,...` or a YAML mapping.

Rule of the room: settings in, one frozen WorkerSpec out, or a ConfigError of one line that names the
setting, what was expected and what was given. Nothing is asked of the worker here: a setting that is not
given stays None and is asked later, and what is given wins over what the worker says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlsplit

from router.engines.endpoint import address_of
from router.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EngineName = Literal["sglang", "vllm"]
Role = Literal["both", "prefill", "decode"]
Choice = TypeVar("Choice", bound=str)

ENGINES: tuple[EngineName, ...] = ("sglang", "vllm")
ROLES: tuple[Role, ...] = ("both", "prefill", "decode")
SETTINGS = ("kv", "replay", "topic", "block-size", "dp", "engine", "role", "bind", "model")
# More data-parallel ranks than this in one worker is a slip; it also bounds the sockets that we open.
MOST_RANKS = 1024
MOST_BLOCK_TOKENS = 1 << 20

_HOST = re.compile(r"[a-z0-9._~-]+|[0-9a-f:.]*:[0-9a-f:.]*(%[a-z0-9._~-]+)?")
# What ends in a number is an address (WHATWG URL, 3.5): 0177.0.0.1, 127.1 and 0x7f000001 are all 127.0.0.1,
# and a worker has one name.
_NUMBER = re.compile(r"(^|\.)(0x[0-9a-f]*|[0-9]+)\.?$")


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker as configured; None: ask the worker.

    `url` is kept as given, since it is the worker's name everywhere. `kv` and `replay` are rank 0's
    addresses (rank r: port + r), or those of all ranks with `|` between them; a wildcard host in them means
    the URL's host or, in `kv` with `bind`, every interface of this machine. `block_size` is in tokens, `dp`
    counts ranks. `role` "both" leaves the word to the worker. `bind`: the engine's publisher connects, so
    the router binds. `model` is a name that requests may use besides those that the worker says.
    """

    url: str
    kv: str | None = None
    replay: str | None = None
    topic: str | None = None
    block_size: int | None = None
    dp: int | None = None
    engine: EngineName | None = None
    role: Role = "both"
    bind: bool = False
    model: str | None = None

    @property
    def host(self) -> str:
        """The URL's host, an IPv6 address without brackets."""
        return urlsplit(self.url).hostname or ""


def parse_worker(text: str) -> WorkerSpec:
    """Read `URL,kv=tcp://host:port,replay=...,topic=T,block-size=N,dp=N,engine=E,role=R,bind=true,model=M`.

    Raises ConfigError, one line, naming the setting at fault and what was expected.
    """
    url, *parts = (part.strip() for part in text.split(","))
    return _build(url, (_pair(url, part) for part in parts))


def from_mapping(settings: Mapping[object, object]) -> WorkerSpec:
    """Read a mapping of the configuration file: `url` and the settings above, `_` or `-` in their names.

    A null value is a setting that is not given. Raises ConfigError as `parse_worker` does.
    """
    pairs = ((name, value) for name, value in settings.items() if name != "url" and value is not None)
    return _build(settings.get("url"), pairs)


def _pair(url: str, part: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if not equals:
        raise _wrong(url, "setting", "name=value", part)
    return name.strip(), value.strip()


def _build(url: object, pairs: Iterable[tuple[object, object]]) -> WorkerSpec:
    settings = _Settings(_url(url))
    for name, value in pairs:
        settings.add(name, value)
    return settings.spec()


class _Settings:
    """The settings of one worker, each read by its kind."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._values: dict[str, object] = {}

    def add(self, name: object, value: object) -> None:
        key = name.replace("_", "-") if isinstance(name, str) else ""
        if key not in SETTINGS:
            raise _wrong(self._url, "setting", f"one of {', '.join(SETTINGS)}", name)
        if key in self._values:
            raise _wrong(self._url, key, "to be given once", value)
        self._values[key] = value

    def spec(self) -> WorkerSpec:
        dp = self._count("dp", MOST_RANKS)
        return WorkerSpec(
            url=self._url,
            kv=self._endpoint("kv", dp or 1),
            replay=self._endpoint("replay", dp or 1),
            topic=self._text("topic"),
            block_size=self._count("block-size", MOST_BLOCK_TOKENS),
            dp=dp,
            engine=self._choice("engine", ENGINES),
            role=self._choice("role", ROLES) or "both",
            bind=self._flag("bind"),
            model=self._text("model") or None,
        )

    def _text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise _wrong(self._url, name, "text", value)

    def _count(self, name: str, most: int) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        number = _whole(value)
        if number is None or not 1 <= number <= most:
            raise _wrong(self._url, name, f"a whole number from 1 to {most}", value)
        return number

    def _choice(self, name: str, allowed: tuple[Choice, ...]) -> Choice | None:
        value = self._values.get(name)
        if value is None:
            return None
        for choice in allowed:
            if choice == value:
                return choice
        raise _wrong(self._url, name, f"one of {', '.join(allowed)}", value)

    def _flag(self, name: str) -> bool:
        value = self._values.get(name, False)
        if value is True or value == "true":
            return True
        if value is False or value == "false":
            return False
        raise _wrong(self._url, name, "true or false", value)

    def _endpoint(self, name: str, ranks: int) -> str | None:
        value = self._text(name)
        if value is None:
            return None
        try:
            last = address_of(value, ranks - 1)
        except ValueError as error:
            raise _wrong(self._url, name, str(error), value) from None
        if last is None:
            raise _wrong(
                self._url,
                name,
                f"a tcp address with {ranks} ports, or {ranks} addresses, one per rank",
                value,
            )
        return value


def _whole(value: object) -> int | None:
    # A float or a bool of YAML is a slip, "0x10" and " 16" of a flag too.
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(1 << 63)):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _url(value: object) -> str:
    """Return `value`, a URL that a worker can be reached at, with or without a path prefix."""
    expected = "http://host:port or https://host:port, no query, fragment or user"
    if not isinstance(value, str) or not value.isascii() or re.search(r"[\s\x00-\x1f\x7f?#@\\]", value):
        raise _wrong(value, "url", expected, value)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise _wrong(value, "url", f"{expected}, the port from 1 to 65535", value) from None
    if parts.netloc.endswith(":") or port == 0:
        raise _wrong(value, "url", f"{expected}, the port from 1 to 65535", value)
    host = parts.hostname or ""
    if parts.scheme not in {"http", "https"} or not _HOST.fullmatch(host):
        raise _wrong(value, "url", expected, value)
    if _NUMBER.search(host) and not _is_ipv4(host):
        raise _wrong(value, "url", "an IPv4 address as four decimal numbers", value)
    return value


def _is_ipv4(host: str) -> bool:
    try:
        IPv4Address(host)
    except ValueError:
        return False
    return True


def _wrong(url: object, name: str, expected: str, given: object) -> ConfigError:
    return ConfigError(f"worker {url!r}: {name}: expected {expected}, got {given!r}", param=name)
