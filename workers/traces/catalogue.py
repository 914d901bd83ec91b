"""Generators by name, with their settings as text: `groups,qps=30,own=600`."""

from __future__ import annotations

from inspect import Parameter, signature
from random import Random
from typing import TYPE_CHECKING

from workers.traces.groups import groups, hot, rollouts, siblings
from workers.traces.sessions import agents, chat
from workers.traces.workload import Workload, WorkloadError

if TYPE_CHECKING:
    from collections.abc import Callable

GENERATORS: dict[str, Callable[..., Workload]] = {
    "groups": groups,
    "chat": chat,
    "rollouts": rollouts,
    "agents": agents,
    "hot": hot,
    "siblings": siblings,
}
_MOST = 10_000_000
_SHARES = ("share",)  # settings that are parts of a whole, up to 1


def generate(text: str, *, seed: int, **settings: float) -> Workload:
    """Return the workload that a text names; `settings` count where the text is silent.

    Raises WorkloadError for a name or setting that there is not, and for a value that cannot be.
    """
    name, *parts = text.split(",")
    generator = GENERATORS.get(name)
    if generator is None:
        raise WorkloadError(f"{name!r} is none of {', '.join(GENERATORS)}")
    known = settings_of(name)
    given = {key: value for key, value in settings.items() if key in known} | _read(parts, name)
    _check_size(settings_of(name) | given)
    workload = generator(Random(f"{seed} {name}"), **given)
    if not workload.asks:
        raise WorkloadError(f"{text!r} makes no requests")
    return workload


def _check_size(settings: dict[str, float]) -> None:
    """Raise WorkloadError for what would not fit into memory."""
    for one, other in (("qps", "seconds"), ("groups", "questions")):
        count = settings.get(one, 0) * settings.get(other, 0)
        if count > _MOST:
            raise WorkloadError(f"{one} x {other} must be up to {_MOST}, not {count:g}")


def settings_of(name: str) -> dict[str, float]:
    """Return the settings of a generator with their defaults."""
    parameters = signature(GENERATORS[name]).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is Parameter.KEYWORD_ONLY}


def _read(parts: list[str], name: str) -> dict[str, float]:
    known = settings_of(name)
    given: dict[str, float] = {}
    for part in parts:
        key, _, value = part.partition("=")
        if key not in known:
            raise WorkloadError(f"{name} has no setting {key!r}, only {', '.join(known)}")
        given[key] = _number(key, value, type(known[key]))
    return given


def _number(key: str, text: str, kind: type[float]) -> float:
    try:
        number = kind(text)
    except ValueError:
        number = 0
    most = 1 if key in _SHARES else _MOST
    if not 0 < number <= most:
        wanted = "a whole number" if kind is int else "a number"
        raise WorkloadError(f"{key} must be {wanted} over 0 and up to {most}, not {text!r}")
    return number
