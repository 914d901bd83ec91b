"""A running router, checked by what it says of itself and of its workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from router.commands.findings import Chart, Finding
from router.commands.ink import plural
from router.commands.top import snapshots
from router.commands.workers import state_of
from router.errors import CommandFailed

if TYPE_CHECKING:
    from router.commands.access import Router
    from router.observe.rows import RankRow, WorkerRow
    from router.observe.seen import Seen

_CLOCK_SECONDS = 2.0
_AWAY = {
    "paused": "continue it when its weights are in (POST /admin/workers/NAME/continue)",
    "draining": "undrain it if it is to take requests (POST /admin/workers/NAME/undrain)",
}
_CURES = {
    "silent": "start the engine with --kv-events-config, or give kv=tcp://host:port behind the worker's URL",
    "degraded": "give the engine a replay_endpoint, so that what was lost can be fetched",
    "connecting": "see that the endpoint has * in it, and that its port is open from the router",
}


async def look(router: Router) -> tuple[list[Finding], list[WorkerRow]]:
    """Return what is found, and the router's workers."""
    chart = Chart(router.url)
    try:
        seen = await _first(router)
    except CommandFailed as failure:
        chart.wrong("reachable", failure.message, "start the router, or give its right --url and --key")
        return chart.findings, []
    chart.well("reachable", f"kv-router {seen.version}, policy {seen.policy}")
    _clock(chart, seen.time - time.time())
    ready = sum(row.state == "ready" for row in seen.workers)
    if ready:
        chart.well("ready", f"{ready} of {plural(len(seen.workers), 'worker')}")
    else:
        chart.wrong(
            "ready", f"none of {plural(len(seen.workers), 'worker')}", "see the workers below, or add one"
        )
    for row in seen.workers:
        chart.findings.extend(_worker(row))
    return chart.findings, seen.workers


async def _first(router: Router) -> Seen:
    async for seen in snapshots(router):
        return seen
    raise CommandFailed(f"{router.url} has ended the stream")


def _clock(chart: Chart, ahead: float) -> None:
    if abs(ahead) <= _CLOCK_SECONDS:
        chart.well("clock", f"within {_CLOCK_SECONDS:g} s of this machine's")
    else:
        where = "ahead of" if ahead > 0 else "behind"
        chart.wrong("clock", f"{abs(ahead):.1f} s {where} this machine's", "run NTP or chrony on both")


def _worker(row: WorkerRow) -> list[Finding]:
    """Return what the router knows of a worker."""
    chart = Chart(f"{row.url} as the router sees it")
    state = state_of(row)
    if state in _AWAY:
        chart.note("state", ": ".join(filter(None, (state, row.why))), _AWAY[state])
    elif state == "ready":
        chart.well("state", state)
    else:
        why = row.why or row.breaker.cause
        chart.wrong(
            "state", ": ".join(filter(None, (state, why))), "see the worker's log, and that its URL is right"
        )
    _tokens(chart, row)
    for rank in row.ranks:
        _rank(chart, rank, f" of rank {rank.rank}" if len(row.ranks) > 1 else "")
    return chart.findings


def _tokens(chart: Chart, row: WorkerRow) -> None:
    cure = "give --tokenizer the model's own, or make the worker's path readable on the router's side"
    if row.tokens == "distrusted":
        chart.wrong("tokenizer", row.tokens_why, "give --tokenizer the model's own, of the same version")
    elif row.tokens in {"worker", "text"}:
        chart.note("tokenizer", f"by {row.tokens}: {row.tokens_why}", cure)
    elif row.tokens:
        chart.well("tokenizer", row.tokens)


def _rank(chart: Chart, rank: RankRow, which: str) -> None:
    check = f"view{which}"
    said = ": ".join(filter(None, (rank.view, rank.why)))
    idle = rank.view == "connecting" and rank.why.startswith("no batch has come yet")
    if rank.view == "live":
        chart.well(check, said)
    elif idle or rank.view == "replaying":
        chart.note(check, said, "send it a request, or wait")
    else:
        chart.wrong(check, said, _CURES.get(rank.view, "see the router's log"))
    if rank.gaps and not rank.replays:
        chart.wrong(
            f"gaps{which}",
            f"{plural(rank.gaps, 'gap')}, and no history to fill them from",
            _CURES["degraded"],
        )
    elif rank.gaps:
        chart.note(
            f"gaps{which}",
            f"{plural(rank.gaps, 'gap')}, {plural(rank.replays, 'replay')}",
            "see what loses batches",
        )
    if rank.undecodable:
        chart.wrong(
            f"decodable{which}", f"{rank.undecodable} events could not be understood", "update the router"
        )
    if doubts := rank.resets.get("contradicted", 0):
        chart.wrong(
            f"truth{which}", f"answers contradicted the view {doubts} times", "see that kv= is this worker's"
        )
