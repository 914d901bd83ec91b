"""`kv-router config check FILE`: all that is wrong with a file, a line for each mistake."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from router.config import CONFIG_FILE, OPTIONS, Config
from router.errors import ConfigError
from router.front import check_routes
from router.layers import given_values, read_layer, read_settings
from router.together import contradictions, lacking, no_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from router.setting import Given

_NEEDED = "neither the file nor a variable gives it here, so something has to where the router starts"


@dataclass(slots=True)
class Found:
    """What is wrong, a line for each, and what a file needs besides. The router takes one without either."""

    mistakes: list[str] = field(default_factory=list)
    needed: list[str] = field(default_factory=list)


def checked(path: str, environ: Mapping[str, str]) -> Found:
    """Return what is to be said of a file.

    What it does not say may be said by variables, and by flags; a file without workers is no mistake. Raises
    ConfigError when it cannot be read as settings at all, and for the first variable that is wrong.
    """
    elsewhere = given_values({}, {name: environ[name] for name in environ if name != CONFIG_FILE.variable})
    found, values = Found(), dict[str, Any]()
    for name, given in read_settings(path).items():
        for part in _parts(name, given):
            try:
                value = read_layer({name: part})[name]
            except ConfigError as error:
                found.mistakes += error.lines
            else:
                values[name] = (*values.get(name, ()), *value) if _repeated(name) else value
    config = Config(**{"workers": (), **elsewhere, **values})
    if not found.mistakes:  # what is wrong is no less given
        found.needed += [f"{path}: {line}: {_NEEDED}" for line in lacking(config)]
    found.mistakes += [f"{path}: {line}" for line in _together(config, has_workers="workers" in values)]
    return found


def _repeated(name: str) -> bool:
    return name in OPTIONS and OPTIONS[name].setting.repeated


def _parts(name: str, given: Given) -> Sequence[Given]:
    """Return the items of a list one by one, each as a list of its own: each can be wrong."""
    if _repeated(name) and isinstance(given.value, list):
        return [replace(given, value=[item]) for item in given.value]
    return [given]


def _together(config: Config, *, has_workers: bool) -> Iterator[str]:
    if has_workers:
        yield from no_worker(config)
    yield from contradictions(config)
    try:
        check_routes(config)
    except ConfigError as error:
        yield from error.lines
