"""Where requests for a model may go: the table of model names, built anew whenever a worker changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from router.core.rank import Rank
from router.fleet.spec import EngineName
from router.fleet.worker import WorkerState

if TYPE_CHECKING:
    from collections.abc import Collection

    from router.fleet.worker import Worker

_WILL_BE_READY = frozenset({WorkerState.PAUSED, WorkerState.DRAINING})
# How far one may rely on a worker that takes requests: fully; it has said that it has too much to do; its
# breaker is open.
_FULLY, _LOADED, _OPEN = range(3)


class Halves(msgspec.Struct):
    """The ranks of prefill workers and those of decode workers, all of one engine."""

    prefill: list[Rank] = []
    decode: list[Rank] = []


class Route(msgspec.Struct):
    """What a model name stands for: base model, LoRA adapter if it is one, and the ranks that serve it.

    `ranks` are those of ready workers that do all of a request, as far as one may rely on them most: there
    are some as long as one worker is ready. `spare`: those to turn to when none of `ranks` will do, better
    ones first. `paused`: whether others will be ready again by themselves. `engine` is that of the first
    worker: how it names adapters and renders chats holds for all. `halves` are the ready ones of prefill and
    decode workers, by engine, since only the same kind can form pairs; None where no worker has such a role.
    """

    model: str
    lora: str | None
    engine: EngineName
    ranks: list[Rank]
    paused: bool = False
    halves: dict[EngineName, Halves] | None = None
    spare: list[list[Rank]] = []

    @property
    def serves(self) -> bool:
        """Whether somebody can take a request now."""
        return bool(self.ranks) or any(half.prefill and half.decode for half in (self.halves or {}).values())

    @property
    def spokesman(self) -> Rank | None:
        """A rank whose worker can be asked about the model, if one is up."""
        halves = (self.halves or {}).values()
        return next(
            (rank for ranks in (self.ranks, *(half.prefill for half in halves)) for rank in ranks), None
        )


def routes_of(workers: Collection[Worker]) -> dict[str, Route]:
    """Build the table of model names."""
    table: dict[str, Route] = {}
    for worker in workers:
        for name, lora in _names(worker):
            said = worker.description
            assert said is not None  # noqa: S101 - it has names
            route = table.setdefault(name, Route(said.model, lora, said.engine, []))
            if said.role != "both" and route.halves is None:
                route.halves = {}
            if _out(worker):
                route.paused |= worker.state in _WILL_BE_READY and not worker.drained
    for worker in sorted(workers, key=_trust):
        _enter(worker, table)
    return table


def _enter(worker: Worker, table: dict[str, Route]) -> None:
    """Add a worker's ranks to the routes of its names, where they can be used now; the most trusted first."""
    if _out(worker):
        return
    for name, _ in _names(worker):
        route = table[name]
        ranks = _ranks_of(worker, route)
        if not ranks or _trust(ranks[0].owner) == _trust(worker):
            ranks.extend(worker.ranks)
        elif ranks is route.ranks:
            _spare(worker, route.spare).extend(worker.ranks)


def _spare(worker: Worker, spare: list[list[Rank]]) -> list[Rank]:
    if not spare or _trust(spare[-1][0].owner) != _trust(worker):
        spare.append([])
    return spare[-1]


def _trust(worker: Worker) -> int:
    if not worker.health.breaker.takes:
        return _OPEN
    return _LOADED if worker.health.loaded else _FULLY


def _ranks_of(worker: Worker, route: Route) -> list[Rank]:
    role = worker.description.role if worker.description is not None else "both"
    if role == "both" or route.halves is None or worker.description is None:
        return route.ranks
    half = route.halves.setdefault(worker.description.engine, Halves())
    return half.prefill if role == "prefill" else half.decode


def _names(worker: Worker) -> list[tuple[str, str | None]]:
    """Return a worker's model names, each with the adapter that it stands for."""
    said = worker.description
    if said is None:
        return []
    given = (worker.spec.model,) if worker.spec.model is not None else ()
    own = dict.fromkeys((said.model, *said.aliases, *given))
    names: list[tuple[str, str | None]] = [(name, None) for name in own]
    if said.engine == "sglang":
        # SGLang (0.5.23) looks for an adapter behind a colon only; its name alone means the base model.
        return names + [(f"{said.model}:{name}", name) for name in said.adapters]
    return names + [(name, name) for name in said.adapters]


def refusal(worker: Worker) -> str:
    """Say why a worker takes no new request, or none as long as another one can; "" when it does."""
    health = worker.health
    out = _out(worker)
    if out or _trust(worker) == _FULLY:
        return out
    if not health.breaker.takes:
        return f"breaker {health.breaker.state}: {health.breaker.cause}"
    return f"it has too much to do, for {health.loaded_seconds():.1f} s more"


def _out(worker: Worker) -> str:
    """Say why a worker takes no request at all, "" when it does."""
    state, why = worker.shown()
    if state is not WorkerState.READY:
        return f"{state}: {why}" if why else str(state)
    return ""
