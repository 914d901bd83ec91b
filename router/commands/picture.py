"""One picture of the fleet in lines of text: the figures, a row for each worker, resets, decisions."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from router.commands.ink import STATES, cut, plural, share, short, span, width
from router.commands.table import Cell, lines
from router.commands.workers import place, state_of, tiers_of, view_of
from router.printable import printable

if TYPE_CHECKING:
    from router.commands.ink import Ink
    from router.observe.decisions import Decision, Offer
    from router.observe.resets import Reset
    from router.observe.rows import WorkerRow
    from router.observe.seen import Seen

_WINDOW_SECONDS = 60.0
_HEADS = ("WORKER", "STATE", "RUNNING", "TO PREFILL", "BLOCKS", "", "HIT", "VIEW", "LAST EVENT", "MODEL")
_BAR = 16
_RESETS, _DECISIONS = 5, 50
_LEAST_WORKERS = 3


class Picture:
    """Takes in snapshots and draws the last; rates and shares are of a minute, or of all it has seen."""

    def __init__(self, url: str, ink: Ink) -> None:
        self._url = printable(url)
        self._ink = ink
        self._past: deque[Seen] = deque()
        self._resets: deque[Reset] = deque(maxlen=_RESETS)
        self._decisions: deque[Decision] = deque(maxlen=_DECISIONS)
        self._lost = ""
        unicode = (sys.stdout.encoding or "").lower().startswith("utf")
        self._marks = "█▓▒░" if unicode else "#=+:"

    @property
    def has_any(self) -> bool:
        """Whether there is anything to draw."""
        return bool(self._past)

    def see(self, seen: Seen) -> None:
        """Take a snapshot in."""
        past = self._past
        if past and (seen.process != past[-1].process or _answered(seen) < _answered(past[-1])):
            past.clear()
        self._lost = ""
        self._resets.extend(seen.resets)
        self._decisions.extend(seen.decisions)
        past.append(seen)
        while seen.time - past[0].time > _WINDOW_SECONDS:
            past.popleft()

    def lose(self, why: str) -> None:
        """Say from now on why what is shown is old."""
        self._lost = printable(why)

    def lines(self, columns: int | None, rows: int | None) -> list[str]:
        """Return the lines, as many and as wide as fit; None: as they are."""
        if not self._past:
            return [cut(f"{self._url}: waiting", columns or 80)]
        top = [*self._figures(columns), ""]
        workers = self._workers(columns)
        tail = self._tail(columns)
        if rows is not None:
            room = rows - len(top)
            least = min(len(workers), 1 + _LEAST_WORKERS)
            tail = tail[: max(0, room - max(least, len(workers)))] if len(workers) < room else []
            workers = _fitting(workers, room - len(tail), columns)
        shown = top + workers + tail
        return shown if rows is None else shown[:rows]

    def _figures(self, columns: int | None) -> list[str]:
        now, first, ink = self._past[-1], self._past[0], self._ink
        seconds = now.time - first.time
        totals = now.totals
        ready = sum(row.state == "ready" for row in now.workers)
        prompt, cached = self._done(now.workers)
        running = sum(row.inflight_requests for row in now.workers)
        rate = short((_answered(now) - _answered(first)) / seconds) if seconds else "-"
        clock = time.strftime("%H:%M:%S", time.localtime(now.time))
        state = ink("bad", self._lost) if self._lost else ink("good", "live")
        figures = [
            f"{ready} of {plural(len(now.workers), 'worker')} ready",
            f"{rate} requests/s",
            f"hit {share(cached, prompt)}",
            f"{running} running",
            f"{totals.waiting} waiting",
            f"{short(totals.index_blocks)} blocks known ({short(totals.index_bytes)}B)",
            plural(totals.errors, "error"),
        ]
        process = f"  process {now.process}" if now.process else ""
        head = printable(f"kv-router {now.version}  {self._url}  policy {now.policy}{process}  {clock}  ")
        if columns is None or width(head) + width(self._lost or "live") <= columns:
            return [ink("bold", head) + state, *_folded(figures, columns)]
        return [
            ink("bold", cut(head, columns)),
            *([cut(self._lost, columns)] if self._lost else []),
            *_folded(figures, columns),
        ]

    def _done(self, rows: list[WorkerRow]) -> tuple[int, int]:
        """Return prompt tokens and cached ones of the last minute; of a worker without any, since it came."""
        before = {row.url: row for row in self._past[0].workers}
        prompt = cached = 0
        for row in rows:
            then = before.get(row.url)
            if then is None or then.prompt_tokens > row.prompt_tokens or len(self._past) == 1:
                prompt, cached = prompt + row.prompt_tokens, cached + row.cached_tokens
            else:
                prompt += row.prompt_tokens - then.prompt_tokens
                cached += row.cached_tokens - then.cached_tokens
        return prompt, cached

    def _workers(self, columns: int | None) -> list[str]:
        rows = self._past[-1].workers
        most = max((sum(tiers_of(row).values()) + _predicted(row) for row in rows), default=0)
        return lines(_HEADS, [self._row(row, most) for row in rows], self._ink, columns)

    def _row(self, row: WorkerRow, most: int) -> list[Cell]:
        view, ranks = view_of(row)
        prompt, cached = self._done([row])
        ages = [rank.event_age_seconds for rank in row.ranks if rank.event_age_seconds is not None]
        held = [f"{short(count)} {tier}" for tier, count in tiers_of(row).items() if count]
        return [
            Cell(place(row.url)),
            Cell(state_of(row), STATES.get(row.state, "")),
            Cell(str(row.inflight_requests), right=True),
            Cell(short(row.inflight_tokens), right=True),
            Cell(self._bar(row, most), "held"),
            Cell(" + ".join(held)),
            Cell(
                share(cached, prompt) if prompt else share(row.cached_tokens, row.prompt_tokens), right=True
            ),
            Cell(
                view if ranks == len(row.ranks) else f"{view} ({ranks}/{len(row.ranks)})",
                STATES.get(view, ""),
            ),
            Cell(f"{span(min(ages))} ago" if ages else "-"),
            Cell(row.model or "-", "quiet"),
        ]

    def _bar(self, row: WorkerRow, most: int) -> str:
        """Return the blocks as a bar, a mark for each tier, the lightest for what is only predicted."""
        amounts = [*list(tiers_of(row).values())[:3], 0, 0, 0][:3]
        bar, total = "", 0
        for mark, amount in zip(self._marks, (*amounts, _predicted(row)), strict=True):
            total += amount
            bar += mark * (round(_BAR * total / most) - len(bar)) if most else ""
        return bar.ljust(_BAR)

    def _tail(self, columns: int | None) -> list[str]:
        """Return the resets and decisions, the newest first."""
        quiet = self._ink
        shown = []
        if self._resets:
            shown += ["", quiet("quiet", _fit("RESETS", columns))]
            shown += [_fit(_reset(one), columns) for one in reversed(self._resets)]
        if self._decisions:
            shown += ["", quiet("quiet", _fit("DECISIONS", columns))]
            shown += [_fit(_decision(one), columns) for one in reversed(self._decisions)]
        return shown


def _answered(seen: Seen) -> int:
    return sum(row.answered for row in seen.workers)


def _predicted(row: WorkerRow) -> int:
    return sum(rank.predicted_blocks for rank in row.ranks)


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def _reset(one: Reset) -> str:
    return f"{_clock(one.time)}  {place(one.worker)} rank {one.rank}  {one.cause.replace('_', ' ')}"


def _decision(one: Decision) -> str:
    own, *others = one.candidates
    dearer = ", ".join(_cost(other) for other in others[:3])
    costs = f"cost {_cost(own)}" + (f", else {dearer}" if dearer else "")
    cached = own.cached_tokens + own.predicted_tokens
    held = f"{cached} of {one.prompt_tokens} tokens held"
    where = f"{place(one.worker)} rank {one.rank}"
    return "  ".join((_clock(one.time), where, held, costs, one.model, one.id[:12]))


def _cost(one: Offer) -> str:
    return "never" if one.cost is None else short(one.cost)


def _fit(text: str, columns: int | None) -> str:
    return printable(text) if columns is None else cut(printable(text), columns)


def _folded(parts: list[str], columns: int | None) -> list[str]:
    """Return the parts on as few lines as fit."""
    folded = [parts[0]]
    for part in parts[1:]:
        joined = f"{folded[-1]}  {part}"
        if columns is None or width(joined) <= columns:
            folded[-1] = joined
        else:
            folded.append(part)
    return [text if columns is None else cut(text, columns) for text in folded]


def _fitting(workers: list[str], room: int, columns: int | None) -> list[str]:
    """Return as many as fit, and how many do not."""
    if len(workers) <= room:
        return workers
    kept = max(1, room - 1)
    return [*workers[:kept], _fit(f"... and {len(workers) - kept} more", columns)]
