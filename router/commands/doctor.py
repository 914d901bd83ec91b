"""`kv-router doctor`: what is wrong with a fleet, seen from outside, and how to cure it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec

from router.commands.access import router_at
from router.commands.checkup import Checkup, Means
from router.commands.findings import Chart, Finding, report
from router.commands.ink import Ink, plural, say, say_json
from router.commands.routercheck import look
from router.errors import CommandFailed
from router.fleet.spec import WorkerSpec, parse_worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.commands.access import Access

_AT_ONCE = 8
# What can be wrong from here alone: the way to a worker, and what the operator told the router of it.
_OF_THE_WAY = frozenset({"reachable", "events", "replay", "block size"})


def run(workers: Sequence[str], access: Access, means: Means, *, as_json: bool) -> bool:
    """Print what is found; say whether nothing is wrong. Raises ConfigError for what was given wrongly."""
    logging.disable()  # what is worth knowing is a finding
    specs = [parse_worker(text) for text in workers]
    found = asyncio.run(_check(specs, access, means))
    wrong = sum(one.level == "wrong" for one in found)
    if as_json:
        say_json(msgspec.json.encode({"ok": not wrong, "findings": found}))
    else:
        notes = sum(one.level == "note" for one in found)
        verdict = f"{plural(wrong, 'thing')} wrong" if wrong else "Nothing is wrong"
        say("\n".join([*report(found, Ink()), "", f"{verdict}, {plural(notes, 'note')}."]))
    return not wrong


async def _check(specs: list[WorkerSpec], access: Access, means: Means) -> list[Finding]:
    if specs:
        return await _all(specs, means)
    try:
        async with router_at(access) as router:
            found, rows = await look(router)
    except CommandFailed as failure:
        chart = Chart(access.url)
        chart.wrong("reachable", failure.message, "start the router, or give its right --url and --key")
        return chart.findings
    sound = {
        row.url for row in rows if row.state == "ready" and all(rank.view == "live" for rank in row.ranks)
    }
    direct = await _all([WorkerSpec(row.url) for row in rows], means)
    return found + [_softened(one) if one.subject.partition(" ")[0] in sound else one for one in direct]


def _softened(one: Finding) -> Finding:
    """Return what does not work from here, and does from the router, as a note."""
    if one.level != "wrong" or one.check not in _OF_THE_WAY:
        return one
    return Finding(one.subject, one.check, "note", f"{one.said}; from the router it works", one.cure)


async def _all(specs: list[WorkerSpec], means: Means) -> list[Finding]:
    """Check workers, a few at a time; the findings are in the order of the workers."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(spec: WorkerSpec) -> list[Finding]:
        async with room:
            return await Checkup(spec, means).run()

    return [finding for found in await asyncio.gather(*map(one, specs)) for finding in found]
