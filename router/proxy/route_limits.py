"""Time limits of one route, laid over those of all: how they are written in a flag or a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from router.errors import ConfigError, raise_all

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPECTED = "PATH,setting=SECONDS[,...]"
_NAMES = ("connect", "first-byte", "idle", "total")
_ANY = f"one of {', '.join(_NAMES)}"
_PATH = re.compile(r"/[\w./:@~-]*", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,5}(\.[0-9]{1,6})?")
_MOST_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class RouteLimits:
    """Limits in seconds of the route at `path`; 0 is none, None is what holds for all routes."""

    path: str
    connect: float | None = None
    first_byte: float | None = None
    idle: float | None = None
    total: float | None = None


def parse_route_limits(text: str) -> RouteLimits:
    """Read `PATH,connect=N,first-byte=N,idle=N,total=N`; ConfigError has a line for each wrong one."""
    path, *parts = (part.strip() for part in text.split(","))
    limits = _Limits(path)
    for part in parts:
        name, _, value = part.partition("=")
        limits.add(name, value)
    return limits.read()


def route_limits_from_mapping(settings: Mapping[object, object]) -> RouteLimits:
    """Read a mapping of the configuration file: `path` and the settings above, `_` or `-` in their names."""
    limits = _Limits(settings.get("path"))
    for name, value in settings.items():
        if name != "path":
            limits.add(name, value)
    return limits.read()


class _Limits:
    """The limits of one route as they are given; what is wrong with any is kept until all are."""

    def __init__(self, path: object) -> None:
        self._path = path
        self._said: dict[str, float] = {}
        self._wrong: list[ConfigError] = []
        if not isinstance(path, str) or not _PATH.fullmatch(path):
            self._refuse("path", f"one that begins with /, got {path!r:.80}")

    def add(self, name: object, value: object) -> None:
        """Take a limit."""
        key, open_ones = str(name).strip().replace("_", "-"), [one for one in _NAMES if one not in self._said]
        if key not in open_ones:
            near = get_close_matches(key, open_ones, n=1) or [f"{_ANY}, each once"]
            self._refuse("setting", f"{near[0]}, got {name!r:.80}")
            return
        text, least = str(value).strip(), ", not 0" * (key == "connect")
        self._said[key] = float(text) if _NUMBER.fullmatch(text) else _MOST_SECONDS + 1
        if self._said[key] > _MOST_SECONDS or (least and not self._said[key]):
            self._refuse(key, f"seconds up to {_MOST_SECONDS:g}{least}, got {value!r:.80}")

    def read(self) -> RouteLimits:
        """Return what they come to. Raises ConfigError with all that is wrong."""
        if not self._said and not self._wrong:
            self._refuse("setting", f"at least {_ANY}")
        raise_all(self._wrong)
        return RouteLimits(str(self._path), *map(self._said.get, _NAMES))

    def _refuse(self, name: str, expected: str) -> None:
        self._wrong.append(ConfigError(f"limits of route {self._path!r:.80}: {name}: expected {expected}"))
