"""`kv-router replay`: the sessions of a directory re-run, compared, and other policies judged on them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from router.printable import printable, printable_json
from router.records.entries import Row, Session
from router.records.format import RecordError
from router.records.judge import Judge, Judged
from router.records.reader import Stored, sessions
from router.records.rerun import Rerun
from router.records.revived import policy_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from router.records.differences import Difference

# Differences shown to people; JSON has more of them.
_SHOWN = 20
_COLUMNS = (
    "policy",
    "requests",
    "as recorded",
    "cached",
    "uncached tokens",
    "spread",
    "token spread",
    "peak",
)


@dataclass(slots=True)
class Replayed:
    """What has come of one session.

    `decisions` are the choices re-run, `rows` those of views that were compared, `batches` those applied.
    `different`: how many differences there are, the first of which are `differences`. `whole`: the record
    begins where the session did; if not, nothing can be compared. `ended`: it was ended in order. `views` are
    those at the end. `notes` say what is missing.
    """

    session: str
    version: str
    began: float
    seconds: float
    policy: str
    batches: int
    decisions: int
    rows: int
    whole: bool
    ended: bool
    different: int
    differences: list[Difference]
    views: list[Row]
    notes: list[str]
    policies: list[Judged] = field(default_factory=list)


def replay(directory: str, policies: Sequence[str]) -> list[Replayed]:
    """Re-run all sessions. Raises RecordError for what is no record, and for policies that do not exist."""
    for name in policies:
        policy_of(name)
    return [_replayed(stored, policies) for stored in sessions(directory)]


def _replayed(stored: Stored, policies: Sequence[str]) -> Replayed:
    entries = stored.entries()
    session = next(entries, None)
    if not isinstance(session, Session):
        raise RecordError(f"{stored.parts[0]}: it is cut before its first entry")
    rerun = Rerun(session)
    for entry in entries:
        rerun.take(entry)
    return Replayed(
        session.session,
        session.version,
        session.began,
        rerun.last - session.now,
        session.policy,
        rerun.batches,
        rerun.choices,
        rerun.rows,
        rerun.whole,
        rerun.ended,
        rerun.different,
        rerun.differences,
        rerun.rows_now(),
        _notes(stored, session, rerun.evicted),
        _judged(stored, session, policies, rerun.peaks),
    )


def _notes(stored: Stored, session: Session, evicted: int) -> list[str]:
    notes = list(stored.notes)
    stored.notes.clear()
    if session.part:
        notes.append(f"parts 0 to {session.part - 1} have been deleted: nothing can be compared")
    if session.shared:
        notes.append(
            "one of several processes or routers: its choices, by what others told it, are not compared"
        )
    if evicted:
        notes.append(
            f"the index was full, {evicted} blocks were forgotten: views are not compared after that"
        )
    return notes


def _judged(
    stored: Stored, session: Session, policies: Sequence[str], capacity: dict[int, int]
) -> list[Judged]:
    if not policies:
        return []
    # A policy of the operator's own cannot be asked again.
    own = () if ":" in session.policy else (session.policy,)
    judges = [Judge(session, name, capacity) for name in dict.fromkeys((*own, *policies))]
    for entry in stored.entries():
        for judge in judges:
            judge.take(entry)
    stored.notes.clear()
    return [judge.result() for judge in judges]


def shown(found: Sequence[Replayed], *, as_json: bool) -> str:
    """Return the result as text, or as JSON."""
    if as_json:
        said = msgspec.json.format(msgspec.json.encode({"sessions": found}), indent=2).decode()
        return printable_json(said) + "\n"
    return "".join(f"{printable(line)}\n" for one in found for line in _lines(one))


def _lines(one: Replayed) -> Iterable[str]:
    yield f"session {one.session}: {one.seconds:.1f} s, policy {one.policy}, kv-router {one.version}"
    yield from (f"  {note}" for note in one.notes)
    if not one.ended:
        yield "  its end was not recorded"
    outcome = f"{one.different} differences" if one.different else "all as recorded"
    if not one.whole:
        outcome = "not compared"
    yield f"  {one.batches} batches, {one.decisions} decisions, {one.rows} rows of views: {outcome}"
    for each in one.differences[:_SHOWN]:
        yield f"  {each.where}: recorded {each.recorded!r}, now {each.rerun!r}"
    if one.different > _SHOWN:
        yield f"  and {one.different - _SHOWN} more"
    yield from _table(one.policies)


def _table(policies: Sequence[Judged]) -> Iterable[str]:
    if not policies:
        return
    rows = [_COLUMNS, *map(_cells, policies)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))


def _cells(one: Judged) -> tuple[str, ...]:
    return (
        one.policy,
        str(one.requests),
        f"{one.agreed / one.choices:.1%}" if one.choices else "-",
        f"{one.cached_share:.1%}",
        str(one.uncached_tokens),
        f"{one.spread:.2f}",
        f"{one.token_spread:.2f}",
        str(one.peak_inflight_tokens),
    )


def run(directory: str, policies: Sequence[str], *, as_json: bool) -> int:
    """Print what a replay finds; return the exit code, 1 when anything differs."""
    found = replay(directory, policies)
    sys.stdout.write(shown(found, as_json=as_json))
    return int(any(one.different for one in found))
