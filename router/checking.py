"""`kv-router config check FILE`: all that is wrong with a file, a line for each mistake."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from router.config import OPTIONS, Config
from router.errors import ConfigError
from router.front import check_routes
from router.layers import check_workers, read_layer, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from router.setting import Given


def mistakes(path: str) -> Iterator[str]:
    """Yield a line for each mistake in a file, none when the router would take it.

    What a file does not say may be said by flags and variables; a file without workers is no mistake. Raises
    ConfigError when it cannot be read as settings at all.
    """
    values: dict[str, object] = {}
    for name, given in read_settings(path).items():
        for part in _parts(name, given):
            try:
                value = read_layer({name: part})[name]
            except ConfigError as error:
                yield from error.lines
            else:
                before = values.get(name, ())
                values[name] = (*before, *value) if _repeated(name) and isinstance(before, tuple) else value
    yield from _contradictions(path, values)


def _repeated(name: str) -> bool:
    return name in OPTIONS and OPTIONS[name].setting.repeated


def _parts(name: str, given: Given) -> Sequence[Given]:
    """Return the items of a list one by one, each as a list of its own: each can be wrong."""
    if _repeated(name) and isinstance(given.value, list):
        return [replace(given, value=[item]) for item in given.value]
    return [given]


def _contradictions(path: str, values: dict[str, object]) -> Iterator[str]:
    config = Config(**{"workers": (), "discover": "off", **values})  # type: ignore[arg-type] # as `load` does
    for check in (check_workers, check_routes):
        try:
            check(config)
        except ConfigError as error:
            if "workers" in values or check is check_routes:
                yield from error.at(path).lines
