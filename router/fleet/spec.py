"""What the operator says about one worker: `URL,kv=tcp://host:port,block-size=16,...` or a YAML mapping.

Rule of the room: settings in, one frozen WorkerSpec out, or a ConfigError with a line for each that is wrong,
which names the setting, what was expected and what was given. Nothing is asked of the worker here: a setting
that is not given stays None and is asked later, and what is given wins over what the worker says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlsplit

from router.discreet import discreet
from router.engines.endpoint import EXPECTED as EXPECTED_ENDPOINT
from router.engines.endpoint import address_of
from router.errors import ConfigError, raise_all

if TYPE_CHECKING:
    from collections.abc import Mapping

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
_SETTING = re.compile(rf",\s*(?:{'|'.join(SETTINGS)})\s*=")
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

    Raises ConfigError, one line, naming the setting at fault and what was expected, and all others at fault.
    """
    url, *parts = (part.strip() for part in _hushed(text).split(","))
    settings = _Settings(url)
    for part in parts:
        name, equals, value = part.partition("=")
        if equals:
            settings.add(name.strip(), value.strip())
        else:
            settings.refuse("setting", "name=value", part if part in SETTINGS else "***")
    return settings.spec()


def _hushed(text: str) -> str:
    """Return the text without the user of its URL, which must have none; a password can hold commas."""
    first = _SETTING.search(text)
    url = text[: first.start()] if first else text
    return discreet(url) + text[len(url) :]


def from_mapping(given: Mapping[object, object]) -> WorkerSpec:
    """Read a mapping of the configuration file: `url` and the settings above, `_` or `-` in their names.

    A null value is a setting that is not given. Raises ConfigError as `parse_worker` does.
    """
    settings = _Settings(given.get("url"))
    for name, value in given.items():
        if name != "url" and value is not None:
            settings.add(name, value)
    return settings.spec()


class _Settings:
    """The settings of one worker, each read by its kind; what is wrong with any is kept until all are."""

    def __init__(self, url: object) -> None:
        self._url = url if isinstance(url, str) else ""
        self._worker = f"worker {discreet(url)!r}" if isinstance(url, str) else "a worker"
        self._values: dict[str, object] = {}
        self._wrong: list[ConfigError] = []
        if expected := _expected_url(url):
            self.refuse("url", expected, url)

    def add(self, name: object, value: object) -> None:
        """Take a value as it is given."""
        key = name.replace("_", "-") if isinstance(name, str) else ""
        if key not in SETTINGS:
            near = get_close_matches(key, SETTINGS, n=1)
            self.refuse("setting", near[0] if near else f"one of {', '.join(SETTINGS)}", name)
        elif key in self._values:
            self.refuse(key, "to be given once", value)
        else:
            self._values[key] = value

    def refuse(self, name: str, expected: str, given: object) -> None:
        """Take note of what is wrong."""
        got = discreet(given) if isinstance(given, str) else given
        message = f"{self._worker}: {name}: expected {expected}, got {got!r}"
        self._wrong.append(ConfigError(message, param=name))

    def spec(self) -> WorkerSpec:
        """Return what they come to. Raises ConfigError with all that is wrong."""
        dp = self._count("dp", MOST_RANKS)
        spec = WorkerSpec(
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
        raise_all(self._wrong)
        return spec

    def _text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        self.refuse(name, "text", value)
        return None

    def _count(self, name: str, most: int) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        number = _whole(value)
        if number is not None and 1 <= number <= most:
            return number
        self.refuse(name, f"a whole number from 1 to {most}", value)
        return None

    def _choice(self, name: str, allowed: tuple[Choice, ...]) -> Choice | None:
        value = self._values.get(name)
        for choice in allowed:
            if choice == value:
                return choice
        if value is not None:
            self.refuse(name, f"one of {', '.join(allowed)}", value)
        return None

    def _flag(self, name: str) -> bool:
        value = self._values.get(name, False)
        if value is True or value == "true":
            return True
        if value is not False and value != "false":
            self.refuse(name, "true or false", value)
        return False

    def _endpoint(self, name: str, ranks: int) -> str | None:
        value = self._values.get(name)
        if value is not None and (expected := _expected_endpoint(value, ranks)):
            self.refuse(name, expected, value)
        return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    # A float or a bool of YAML is a slip, "0x10" and " 16" of a flag too.
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(1 << 63)):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _expected_endpoint(value: object, ranks: int) -> str:
    """Return what an address should be, "" for one that there is for each of so many ranks."""
    if not isinstance(value, str):
        return EXPECTED_ENDPOINT
    try:
        last = address_of(value, ranks - 1)
    except ValueError as error:
        return str(error)
    return "" if last else f"a tcp address with {ranks} ports, or {ranks} addresses, one per rank"


def _expected_url(value: object) -> str:
    """Return what a URL should be, "" for one that a worker can have, with or without a path prefix."""
    expected = "http://host:port or https://host:port, no query, fragment or user"
    if not isinstance(value, str) or not value.isascii() or re.search(r"[\s\x00-\x1f\x7f?#@\\]", value):
        return expected
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        port = 0
    if port == 0 or parts.netloc.endswith(":"):
        return f"{expected}, the port from 1 to 65535"
    host = parts.hostname or ""
    if parts.scheme not in {"http", "https"} or not _HOST.fullmatch(host):
        return expected
    if _NUMBER.search(host) and not _is_ipv4(host):
        return "an IPv4 address as four decimal numbers"
    return ""


def _is_ipv4(host: str) -> bool:
    try:
        IPv4Address(host)
    except ValueError:
        return False
    return True
