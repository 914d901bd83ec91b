"""Time limits of one route, laid over those of all: how they are written in a flag or a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

EXPECTED = "PATH,setting=SECONDS[,...]"
_NAMES = ("connect", "first-byte", "idle", "total")
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
    """Read `PATH,connect=N,first-byte=N,idle=N,total=N`; raises ConfigError, one line."""
    path, *parts = (part.strip() for part in text.split(","))
    pairs = (part.partition("=")[::2] for part in parts)
    return _built(path, pairs)


def route_limits_from_mapping(settings: Mapping[object, object]) -> RouteLimits:
    """Read a mapping of the configuration file: `path` and the settings above, `_` or `-` in their names."""
    pairs = ((name, value) for name, value in settings.items() if name != "path")
    return _built(settings.get("path"), pairs)


def _built(path: object, pairs: Iterable[tuple[object, object]]) -> RouteLimits:
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise _wrong(path, "path", "one that begins with /")
    said: dict[str, float] = {}
    for name, value in pairs:
        key = str(name).strip().replace("_", "-")
        if key not in _NAMES or key in said:
            raise _wrong(path, "setting", f"one of {', '.join(_NAMES)}, each once")
        said[key] = _seconds(path, key, value)
    if not said:
        raise _wrong(path, "setting", f"at least one of {', '.join(_NAMES)}")
    return RouteLimits(path, *map(said.get, _NAMES))


def _seconds(path: str, name: str, value: object) -> float:
    text = str(value).strip()
    if not _NUMBER.fullmatch(text) or float(text) > _MOST_SECONDS or (name == "connect" and not float(text)):
        raise _wrong(path, name, f"seconds up to {_MOST_SECONDS:g}" + ", not 0" * (name == "connect"))
    return float(text)


def _wrong(path: object, name: str, expected: str) -> ConfigError:
    return ConfigError(f"limits of route {path!r:.80}: {name}: expected {expected}")
