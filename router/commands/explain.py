"""`kv-router explain FILE`: where a request would go, and what it would cost at each rank."""

from __future__ import annotations

import asyncio
import sys
from math import inf
from typing import TYPE_CHECKING

import msgspec

from router.commands.access import Access, router_at
from router.commands.ink import Ink, plural, say, say_json
from router.commands.table import Cell, lines
from router.commands.workers import TIERS, place
from router.errors import CommandFailed
from router.named_file import BOM, read_named
from router.printable import printable

if TYPE_CHECKING:
    from router.commands.access import Router

_MOST_BYTES = 2**28
_HEADS = ("", "WORKER", "RANK", "CACHED", "EXPECTED", "TO COMPUTE", "IN FLIGHT", "RUNNING", "COST", "WHY")


class _Place(msgspec.Struct):
    worker: str
    rank: int


class _Candidate(msgspec.Struct):
    worker: str
    rank: int
    overlap_tokens: dict[str, int]
    predicted_tokens: int
    uncached_tokens: int
    inflight_tokens: int
    active_requests: int
    cost: float | None
    eligible: bool
    why: str
    role: str = "both"
    terms: dict[str, float | str | None] = {}


class _Explained(msgspec.Struct):
    prompt_tokens: int
    exact: bool
    why: str
    policy: str
    candidates: list[_Candidate]
    chosen: _Place | None = None
    decode: _Place | None = None
    block_size: int | None = None


def run(file: str, access: Access, *, as_json: bool) -> None:
    """Print the decision. Raises CommandFailed, ConfigError."""
    body, said = asyncio.run(_ask(_read(file), access))
    if as_json:
        say_json(body)
    else:
        say("\n".join(_shown(said, Ink())))


def _read(file: str) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read(_MOST_BYTES).removeprefix(BOM)
        return read_named(file, _MOST_BYTES)
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error.strerror}") from None


async def _ask(request: bytes, access: Access) -> tuple[bytes, _Explained]:
    async with router_at(access) as router:
        body = await router.post("/explain", request)
        return body, _decoded(body, router)


def _decoded(body: bytes, router: Router) -> _Explained:
    try:
        return msgspec.json.decode(body, type=_Explained)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise router.stranger() from None


def _shown(said: _Explained, ink: Ink) -> list[str]:
    where = "no worker can take it now"
    if said.chosen:
        where = f"to {printable(place(said.chosen.worker))} rank {said.chosen.rank}"
    if said.decode:
        where += f", answered by {printable(place(said.decode.worker))} rank {said.decode.rank}"
    count = plural(said.prompt_tokens, "prompt token")
    worth = "" if said.exact else f" (estimated: {printable(said.why)})"
    size = f", {said.block_size} a block" if said.block_size else ""
    head = f"{ink('bold', where)}  {ink('quiet', f'{count}{worth}{size}, policy {printable(said.policy)}')}"
    best_first = sorted(
        said.candidates, key=lambda one: (not _is_taken(one, said), not one.eligible, _cost(one))
    )
    return [head, "", *lines(_HEADS, [_row(one, said) for one in best_first], ink)]


def _row(one: _Candidate, said: _Explained) -> list[Cell]:
    taken = _is_taken(one, said)
    kind = "bold" if taken else "" if one.eligible else "quiet"
    cached = [f"{tokens} {TIERS.get(tier, tier)}" for tier, tokens in one.overlap_tokens.items() if tokens]
    numbers = (one.predicted_tokens, one.uncached_tokens, one.inflight_tokens, one.active_requests)
    return [
        Cell(">" if taken else "", "good"),
        Cell(place(one.worker) + (f" {one.role}" if one.role != "both" else ""), kind),
        Cell(str(one.rank), kind, right=True),
        Cell(" + ".join(cached) or "0", kind, right=True),
        *(Cell(str(number), kind, right=True) for number in numbers),
        Cell(f"{one.cost:.10g}" if one.cost is not None else "never", kind, right=True),
        Cell(one.why or _terms(one), "quiet"),
    ]


def _cost(one: _Candidate) -> float:
    return inf if one.cost is None else one.cost


def _terms(one: _Candidate) -> str:
    """Return what goes into the cost, as far as there is anything."""
    parts = (
        (name, f"{term:.6g}" if isinstance(term, float) else term or "never")
        for name, term in one.terms.items()
    )
    return ", ".join(f"{name} {term}" for name, term in parts if term != "0")


def _is_taken(one: _Candidate, said: _Explained) -> bool:
    return any(
        place and (place.worker, place.rank) == (one.worker, one.rank) for place in (said.chosen, said.decode)
    )
