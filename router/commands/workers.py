"""`kv-router workers`: a row for each worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from router.commands.access import Access, router_at
from router.commands.ink import STATES, Ink, say, say_json, share, short
from router.commands.table import Cell, lines
from router.observe.rows import WorkerRow

if TYPE_CHECKING:
    from router.commands.access import Router

TIERS = {"CPU_PINNED": "host", "CPU": "host", "DISK": "disk"}
_WORST = ("degraded", "connecting", "replaying", "silent", "live")
_HEADS = ("WORKER", "STATE", "MODEL", "ENGINE", "RUNNING", "BLOCKS", "HIT", "VIEW", "WHY")


class Fleet(msgspec.Struct):
    """What GET /workers answers."""

    workers: list[WorkerRow]


def run(access: Access, *, as_json: bool) -> None:
    """Print them. Raises CommandFailed, ConfigError."""
    body = asyncio.run(_ask(access))
    if as_json:
        say_json(body)
        return
    fleet = msgspec.json.decode(body, type=Fleet)
    say("\n".join(lines(_HEADS, [_row(worker) for worker in fleet.workers], Ink())))


async def _ask(access: Access) -> bytes:
    async with router_at(access) as router:
        return (await fleet_of(router))[0]


async def fleet_of(router: Router) -> tuple[bytes, Fleet]:
    """Return what GET /workers answers, as it came and as rows."""
    body = await router.get("/workers")
    try:
        return body, msgspec.json.decode(body, type=Fleet)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise router.stranger() from None


def _row(row: WorkerRow) -> list[Cell]:
    engine = row.engine or "-"
    view, ranks = view_of(row)
    why = row.why or next((rank.why for rank in row.ranks if rank.view == view), "")
    return [
        Cell(place(row.url)),
        Cell(state_of(row), STATES.get(row.state, "")),
        Cell(row.model or "-"),
        Cell(engine if row.role == "both" else f"{engine} {row.role}"),
        Cell(short(row.inflight_requests), right=True),
        Cell(blocks_of(row)),
        Cell(share(row.cached_tokens, row.prompt_tokens), right=True),
        Cell(
            view if ranks == len(row.ranks) else f"{view} ({ranks} of {len(row.ranks)})", STATES.get(view, "")
        ),
        Cell(why, "quiet"),
    ]


def place(url: str) -> str:
    """Return what tells a worker from the others of a fleet."""
    return url.partition("://")[2].rstrip("/") or url


def state_of(row: WorkerRow) -> str:
    """Return its state, or that its breaker has taken it out."""
    return "taken out" if row.state == "ready" and row.breaker.state == "open" else row.state


def view_of(row: WorkerRow) -> tuple[str, int]:
    """Return the worst state of its ranks' views, and how many are in it."""
    views = [rank.view for rank in row.ranks]
    worst = next((state for state in _WORST if state in views), "-")
    return worst, views.count(worst)


def tiers_of(row: WorkerRow) -> dict[str, int]:
    """Return its blocks by tier, over all ranks, the nearest to the computation first."""
    total: dict[str, int] = {}
    for rank in row.ranks:
        for tier, count in rank.blocks.items():
            name = TIERS.get(tier, tier)
            total[name] = total.get(name, 0) + count
    order = ("GPU", "host", "disk")
    return dict(sorted(total.items(), key=lambda one: order.index(one[0]) if one[0] in order else len(order)))


def blocks_of(row: WorkerRow) -> str:
    """Return them as text."""
    tiers = tiers_of(row)
    predicted = sum(rank.predicted_blocks for rank in row.ranks)
    held = [f"{short(count)} {tier}" for tier, count in tiers.items() if count]
    return " + ".join(held + [f"{short(predicted)} predicted"] * bool(predicted)) or "none"
