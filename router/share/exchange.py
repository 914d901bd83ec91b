"""The parent's part in what processes ask each other: who is there, in what order they follow, what all show.

An effect is written to every process in one step, so all of them follow in one order. A process that does not
follow in time is ended: it would go on to serve from a state that no longer holds, and the one that takes its
place begins with what holds now.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from router.fleet.effects import Effect, Removed
from router.observe.figures import Figure, Figures, lasting, merged
from router.share.journal import Journal
from router.share.line import FOLLOW_SECONDS, SHOW_SECONDS, LineClosed, forget
from router.share.member import Member
from router.share.syncs import Syncs

if TYPE_CHECKING:
    from collections.abc import Callable

    Asked = list[tuple["Member", asyncio.Future[msgspec.Raw]]]

_FIGURES = msgspec.msgpack.Decoder(Figures)
# Every so many seconds each process is asked for a sign of life, and ended when none has come at so many
# looks in a row: after 10 s. A loop is held for milliseconds, but machines stall for seconds, and a process
# that is ended has its streams cut. Looks are counted, not time: a parent that stands still misses none.
LOOK_SECONDS, _MOST_MISSED = 2.0, 5
_log = logging.getLogger(__name__)


class Exchange:
    """All processes of a router."""

    def __init__(
        self,
        *,
        follow_seconds: float = FOLLOW_SECONDS,
        show_seconds: float = SHOW_SECONDS,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._journal = Journal()
        self._members: dict[int, Member] = {}
        self._joined = asyncio.Event()
        self._syncs = Syncs()
        self._last: dict[int, Figures] = {}
        self._departed: Figures = {}
        self._follow_seconds = follow_seconds
        self._show_seconds = show_seconds
        self._look_seconds = look_seconds
        self._vacant: set[int] = set()
        # What processes have taken up of files, for those that start later; the parent cannot read it.
        self.good: dict[str, bytes] = {}
        self.restarts = self.silences = self.reloads = 0

    @property
    def has_joined(self) -> bool:
        """Whether any process ever has: the settings are right."""
        return self._joined.is_set()

    async def joined(self, stopping: asyncio.Event) -> bool:
        """Wait until a process has joined; False: all is to stop."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._joined, stopping)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return not stopping.is_set()

    def member(self, index: int, sender: str, send: Callable[[signal.Signals], None]) -> Member:
        """Return a process that has been started."""
        member = self._members[index] = Member(self, index, sender, send)
        return member

    def reload(self) -> None:
        """Have all read their files again: those that would die of the signal yet, once they have joined."""
        self.reloads += 1
        for member in self._members.values():
            self._reload(member)

    def _reload(self, member: Member) -> None:
        if member.joined and member.reloads < self.reloads:
            member.reloads = self.reloads
            member.signal(signal.SIGHUP)

    async def join(self, member: Member) -> list[Effect]:
        """Let a process take part from now on; return what makes its fleet that of the others."""
        answers = await self.gather(member, "names")
        present = [msgspec.msgpack.decode(raw, type=list[str]) for raw in answers.values() if raw is not None]
        member.joined = True
        self._joined.set()
        self._reload(member)
        if self._vacant:
            self._tell_vacant(member)
        if self._syncs.is_by(""):
            self._rescue()
        return self._journal.effects(chain.from_iterable(present))

    def gone(self, member: Member) -> None:
        """A process has ended: its load counts nothing, and what it has counted is kept."""
        self._members.pop(member.index, None)
        self.restarts += 1
        last = self._last.pop(member.index, None)
        if last is not None:
            self._departed = merged([self._departed, lasting(last)])
        for _, answer in self._call(None, "gone", member.sender):
            answer.add_done_callback(forget)
        if member.serves:
            self._vacant.add(member.index)
            self._tell_vacant()
        if self._syncs.is_by(member.sender):
            self._rescue()

    def _rescue(self) -> None:
        """Have another process continue what a sync has paused whose process is gone; or the next to join."""
        member = next(
            (each for each in self._members.values() if each.joined and each.line is not None), None
        )
        paused = self._syncs.hand_over("" if member is None else member.sender)
        if paused and member is not None and member.line is not None:
            names = ", ".join(paused)
            _log.warning(
                "a process has died during a weight sync: process %d continues %s", member.index, names
            )
            member.line.call("continue", paused).add_done_callback(partial(self._rescued, member))

    def _rescued(self, member: Member, answer: asyncio.Future[msgspec.Raw]) -> None:
        if not isinstance(answer.exception(), LineClosed):  # else another one has to
            self._syncs.end(member.sender)

    def serves(self, member: Member) -> None:
        """A process takes the connections of its place: the others need not any more."""
        member.serves = True
        if member.index in self._vacant:
            self._vacant.discard(member.index)
            self._tell_vacant()

    def _tell_vacant(self, member: Member | None = None) -> None:
        """Have all, or one, take the connections of the places where nobody serves."""
        for each in self._members.values() if member is None else [member]:
            if each.joined and each.line is not None:
                each.line.call("vacant", sorted(self._vacant)).add_done_callback(forget)

    async def watch(self) -> None:
        """End processes that stand still without dying, which nobody else would, until cancelled."""
        while True:
            await asyncio.sleep(self._look_seconds)
            for member in list(self._members.values()):
                self._look(member)

    def _look(self, member: Member) -> None:
        if not member.joined or member.line is None:
            return
        if member.asked is None or member.asked.done():
            member.asked, member.missed = member.line.call("alive"), 0
            member.asked.add_done_callback(forget)
            return
        member.missed += 1
        if member.missed == _MOST_MISSED:
            _log.error("process %d stands still: it is ended", member.index)
            member.signal(signal.SIGKILL)

    async def change(self, origin: Member, effect: Effect) -> int | None:
        """Put a change of the fleet in order, and have all follow; None: it cannot be."""
        if not self._journal.note(effect):
            return None
        seconds = effect.seconds if isinstance(effect, Removed) else 0.0
        cut = await self.follow(origin, effect, all_=True, seconds=seconds)
        if isinstance(effect, Removed):
            self._journal.left(effect.url)
        return cut

    async def follow(
        self, origin: Member, effect: Effect, *, all_: bool = False, seconds: float = 0.0
    ) -> int:
        """Have the others follow, or `all_`; return how many requests were cut."""
        self._syncs.note(origin.sender, effect)
        asked = self._call(None if all_ else origin, "follow", (origin.sender, effect))
        await _wait(asked, seconds + self._follow_seconds)
        return sum(self._followed(member, answer) for member, answer in asked)

    def _followed(self, member: Member, answer: asyncio.Future[msgspec.Raw]) -> int:
        error = answer.exception() if answer.done() else TimeoutError()
        if error is None:
            return msgspec.msgpack.decode(answer.result(), type=int)
        answer.cancel()
        if not isinstance(error, LineClosed):
            _log.error("process %d does not follow: it is ended", member.index)
            member.signal(signal.SIGKILL)
        return 0

    async def gather(self, origin: Member, what: str) -> dict[int, msgspec.Raw | None]:
        """Return what the others show, by their place; None: no answer in time."""
        asked = self._call(origin, what, None)
        await _wait(asked, self._show_seconds)
        found: dict[int, msgspec.Raw | None] = {}
        for member, answer in asked:
            silent = not answer.done() or answer.exception() is not None
            answer.cancel()
            self.silences += silent
            found[member.index] = None if silent else answer.result()
        return found

    async def figures(self, origin: Member, own: Figures) -> Figures:
        """Return the figures of all processes together, those that are gone included."""
        answers = await self.gather(origin, "figures")
        present = {origin.index: own}
        present |= {index: _FIGURES.decode(raw) for index, raw in answers.items() if raw is not None}
        silent = [self._last[index] for index in answers if index not in present and index in self._last]
        self._last |= present
        here = list(present.values())
        kept = lasting(self._departed, here)
        return merged([*here, *map(lasting, silent), kept, self._own()])

    def _own(self) -> Figures:
        return {
            "kv_router_process_restarts_total": [Figure((), float(self.restarts))],
            "kv_router_process_silences_total": [Figure((), float(self.silences))],
        }

    def sync(self, member: Member, *, begins: bool) -> bool:
        """Begin a weight sync, if there is none; or end it."""
        if begins:
            return self._syncs.begin(member.sender)
        self._syncs.end(member.sender)
        return False

    def _call(self, but: Member | None, what: str, body: Any) -> Asked:
        """Call every process that takes part, in one step."""
        return [
            (member, member.line.call(what, body))
            for member in self._members.values()
            if member.joined and member is not but and member.line is not None
        ]


async def _wait(asked: Asked, seconds: float) -> None:
    if asked:
        await asyncio.wait([answer for _, answer in asked], timeout=seconds)
