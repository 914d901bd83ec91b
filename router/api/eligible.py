"""Which ranks may take a request: by what it asks for, and by the roles of their workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.engines.detect import ENGINES
from router.errors import BadRequest, NoRoute, NoWorker
from router.fleet.route import Halves
from router.pairs.body import copies
from router.pairs.choice import Options
from router.prompts.request import GENERATE, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.api.planner import Plan
    from router.core.rank import Rank
    from router.errors import RouterError
    from router.fleet.fleet import Fleet
    from router.fleet.route import Route
    from router.fleet.spec import EngineName

# The routes whose bodies take the fields of a pair on SGLang (0.5.23); vLLM has no /generate.
_PAIRED = frozenset({Kind.COMPLETIONS, Kind.CHAT, Kind.GENERATE})
_COPIED = frozenset({Kind.COMPLETIONS, Kind.CHAT})


def fitting(fleet: Fleet, plan: Plan, ranks: list[Rank]) -> list[Rank]:
    """Return the ranks whose workers know the route and the adapter."""
    if plan.request.kind is GENERATE:
        ranks = fleet.of_engine(ranks, "sglang")
    adapter = plan.prompt.namespace.lora
    return ranks if adapter is None else fleet.with_adapter(ranks, adapter)


def has_pinned(plan: Plan, ranks: list[Rank]) -> bool:
    """Whether there is a rank that the request can go to by its client's pin."""
    number = plan.request.routed_dp_rank
    return bool(ranks) if number is None else any(rank.rank == number for rank in ranks)


def pinned(plan: Plan, ranks: list[Rank]) -> list[Rank]:
    """Return the ranks that the client has pinned the request to. Raises BadRequest when there is none."""
    number = plan.request.routed_dp_rank
    if number is None or not ranks:
        return ranks
    found = [rank for rank in ranks if rank.rank == number]
    if not found:
        raise BadRequest(f"routed_dp_rank: no worker has a rank {number}", param="routed_dp_rank")
    return found


def unspared(fleet: Fleet, ranks: list[Rank]) -> list[Rank]:
    """Return the ranks whose workers have neither said that they have too much to do, nor an open breaker."""
    return [rank for rank in ranks if rank.breaker.takes and not fleet.worker_of(rank).health.loaded]


def computing(route: Route) -> list[Rank]:
    """Return the ranks that compute prompts of a model with prefill or decode workers."""
    return [*route.ranks, *(rank for halves in (route.halves or {}).values() for rank in halves.prefill)]


def with_room(fleet: Fleet, plan: Plan, room: Callable[[list[Rank]], list[Rank]]) -> list[Rank]:
    """Return the ranks with room that could compute the prompt, where whoever decodes then has some too."""
    route = fleet.route(plan.request.model)
    decoding = [rank for halves in (route.halves or {}).values() for rank in halves.decode]
    return room(computing(route)) if room(decoding) or not decoding else room(route.ranks)


def nobody(fleet: Fleet, plan: Plan) -> RouterError:
    """Return what to say where no worker of the model can take the request now, or ever."""
    model = plan.route.model
    if plan.request.kind is GENERATE and not fleet.has_engine("sglang", model):
        return NoRoute(f"/generate is a route of SGLang's, and no worker that serves {model!r} runs it")
    return NoWorker(f"no worker that serves {model!r} can take this request now", retry_after=1)


def copies_of(plan: Plan) -> int:
    """Return how many answers to each prompt the client wants. Raises BadRequest for too many."""
    return copies(plan.body) if plan.request.kind in _COPIED else 1


def options(fleet: Fleet, plan: Plan, copies: int, among: Callable[[list[Rank]], list[Rank]]) -> Options:
    """Return who may take a request of a model with prefill or decode workers; `among` narrows each group.

    A pin to a rank holds for whoever computes the prompt. Raises BadRequest for one that nobody has.
    """
    route = fleet.route(plan.request.model)
    whole = Options(list(route.ranks), [], [])
    for engine, halves in (route.halves or {}).items():
        if not _pairs(plan, engine, copies):
            whole.alone.extend(_instead(plan, engine, halves))
        elif halves.prefill and halves.decode:
            whole.pairs.append(halves)
            whole.able.extend(halves.decode if ENGINES[engine].DECODES_ALONE else [])
    return _narrowed(plan, whole, lambda ranks: among(fitting(fleet, plan, ranks)))


def _pairs(plan: Plan, engine: EngineName, copies: int) -> bool:
    """Whether a request can be split on this engine: see `pairs.bootstrap` and `pairs.transfer`."""
    request = plan.request
    if request.kind not in _PAIRED:
        return False
    return engine == "sglang" or (request.prompts == copies == 1 and request.reads_cache(engine))


def _instead(plan: Plan, engine: EngineName, halves: Halves) -> list[Rank]:
    """Return who does all of a request that cannot be split: what generates nothing can go to either half."""
    if plan.request.kind is Kind.OTHER:
        return halves.prefill + halves.decode
    return halves.decode if ENGINES[engine].DECODES_ALONE else []


def _narrowed(plan: Plan, whole: Options, among: Callable[[list[Rank]], list[Rank]]) -> Options:
    halves = [Halves(among(each.prefill), among(each.decode)) for each in whole.pairs]
    pairs = [each for each in halves if each.prefill and each.decode]
    alone, able = among(whole.alone), among(whole.able)
    kept = {
        id(rank) for rank in pinned(plan, [*alone, *able, *(rank for each in pairs for rank in each.prefill)])
    }

    def chosen(ranks: list[Rank]) -> list[Rank]:
        return [rank for rank in ranks if id(rank) in kept]

    pairs = [Halves(chosen(each.prefill), each.decode) for each in pairs]
    return Options(chosen(alone), chosen(able), [each for each in pairs if each.prefill])


def missing(route: Route) -> str:
    """Say why nobody can take a request of a model with prefill or decode workers."""
    halves = (route.halves or {}).values()
    roles = [role for role in ("prefill", "decode") if not any(getattr(each, role) for each in halves)]
    if len(roles) == 1:
        return f"no {roles[0]} worker that serves {route.model!r} can take a request now: a pair needs both"
    if not roles:
        ask = "run different engines" if not route.serves else "cannot split this request"
        return f"the prefill and decode workers that serve {route.model!r} {ask}"
    return f"no worker that serves {route.model!r} can take this request now"
