"""Makes the fleet what the sources want, one difference at a time.

A worker that no source wants any more is drained and removed; one that is wanted with other settings, or
whose process is another, is replaced; nobody else notices. Where two sources want the same worker, the one
that was named first decides. What the operator does through the admin API stands until a source has news of
that worker: one that was removed stays away, one that was added is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING

from router.errors import BadRequest, Busy, NotPermitted, RouterError, WorkerExists
from router.fleet.allowed import Allowed, Confined
from router.fleet.roster import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from router.fleet.allowed import Network
    from router.fleet.discovery.wanted import Wanted
    from router.fleet.membership import Membership
    from router.fleet.roster import Place
    from router.fleet.spec import WorkerSpec
    from router.fleet.worker import Worker

# How long somebody else's worker in the place of a wanted one is waited for before the next look.
_AGAIN_SECONDS = 0.5
_REFUSED = "its address cannot be used"
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    """A worker that was taken in for a source; `leaving` while it is drained to be removed."""

    wanted: Wanted
    worker: Worker
    leaving: asyncio.Task[int] | None = None


class Reconciler:
    """`workers` are those of the fleet; `networks` ranges that discovered addresses must be in, if any."""

    def __init__(
        self, membership: Membership, workers: Mapping[str, Worker], networks: Sequence[Network]
    ) -> None:
        self._membership = membership
        self._workers = workers
        self._allowed = Allowed(networks) if networks else None
        self._told: dict[str, Sequence[Wanted]] = {}
        self._held: dict[Place, _Held] = {}
        self._refused: dict[Place, tuple[Wanted, str]] = {}
        self._news = asyncio.Event()
        self._pending = False
        self.failing = False

    def hold(self, source: str, wanted: Sequence[Wanted]) -> None:
        """Take note of workers of a source that the fleet has already."""
        self._told[source] = wanted
        for each in wanted:
            self._held[place_of(each.spec.url)] = _Held(each, self._workers[each.spec.url])

    def tell(self, source: str, wanted: Sequence[Wanted]) -> None:
        """Take the whole set of workers that a source wants now."""
        self._told[source] = wanted
        self._news.set()

    async def run(self) -> None:
        """Follow the sources until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_AGAIN_SECONDS if self._pending else None):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            await self._try()

    async def _try(self) -> None:
        """Reconcile; what nobody has thought of is no end: it is said, and tried again soon."""
        try:
            await self._reconcile()
        except Exception:  # noqa: BLE001 - no error is to end it
            if not self.failing:
                _log.exception("discovery has failed; the fleet stays what it was")
            self.failing = self._pending = True
        else:
            self.failing = False

    async def _reconcile(self) -> None:
        self._pending = False
        target, done = self._target(), Counter[str]()
        for place, held in list(self._held.items()):
            done[await self._one(place, held, target.get(place))] += 1
        for place, wanted in target.items():
            if place not in self._held:
                done[await self._one(place, None, wanted)] += 1
        self._refused = {place: said for place, said in self._refused.items() if place in target}
        changes = [f"{count} {what}" for what, count in done.items() if what]
        if changes:
            _log.info("discovery: %s; %d workers are wanted", ", ".join(changes), len(target))

    def _target(self) -> dict[Place, Wanted]:
        target: dict[Place, Wanted] = {}
        for source in self._told.values():
            for wanted in source:
                target.setdefault(place_of(wanted.spec.url), wanted)
        return target

    async def _one(self, place: Place, held: _Held | None, wanted: Wanted | None) -> str:
        """Do for one worker what is to be done; an error nobody has thought of is that worker's alone."""
        try:
            if held is not None:
                return await self._settle(place, held, wanted)
            return "" if wanted is None else await self._take_in(place, wanted)
        except Exception as error:  # noqa: BLE001 - see above
            _log.exception("discovery: worker %s could not be taken up", place)
            if wanted is not None:
                self._refused[place] = wanted, repr(error)
            return ""

    async def _settle(self, place: Place, held: _Held, wanted: Wanted | None) -> str:
        """Make one worker what is wanted of it; return what has been done, "" for nothing."""
        if self._workers.get(held.worker.url) is not held.worker:
            if held.leaving is not None or wanted is None or not held.wanted.is_same(wanted):
                del self._held[place]
            return ""
        if wanted is None:
            return self._remove(held, "no source names it any more")
        if self._is_refused(place, wanted):
            return self._remove(held, _REFUSED)
        if held.leaving is not None and not await self._keep(held):
            self._pending = True
            return ""
        if held.wanted.is_same(wanted):
            _mark(held, wanted)
            return ""
        return await self._replace(place, held, wanted)

    def _remove(self, held: _Held, why: str) -> str:
        if held.leaving is not None:
            return ""
        named = f"{why}, {held.wanted.name}" if held.wanted.name else why
        held.leaving = asyncio.ensure_future(self._membership.remove(held.worker, why=named))
        held.leaving.add_done_callback(self._has_left)
        return "to be removed"

    def _has_left(self, leaving: asyncio.Task[int]) -> None:
        if not leaving.cancelled():
            leaving.exception()  # Busy, for one that is kept after all
            self._news.set()

    async def _keep(self, held: _Held) -> bool:
        """Give up the removal of a worker that is wanted again; say whether it was in time."""
        await self._membership.keep(held.worker)
        held.leaving = None
        return self._workers.get(held.worker.url) is held.worker

    async def _replace(self, place: Place, held: _Held, wanted: Wanted) -> str:
        try:
            spec, confined = await self._confined(wanted)
            worker = await self._membership.replace(held.worker, spec, confined)
        except Busy:
            self._pending = True
            return ""
        except (NotPermitted, BadRequest) as error:
            self._refuse(place, wanted, error)
            return self._remove(held, _REFUSED)
        self._held[place] = held = _Held(wanted, worker)
        _mark(held, wanted)
        _say(wanted, "replaced")
        return "changed"

    async def _take_in(self, place: Place, wanted: Wanted) -> str:
        if self._is_refused(place, wanted):
            return ""
        try:
            spec, confined = await self._confined(wanted)
            worker = self._membership.enter(spec, confined)
        except WorkerExists:
            self._pending = True
            return ""
        except (NotPermitted, BadRequest) as error:
            self._refuse(place, wanted, error)
            return ""
        self._held[place] = held = _Held(wanted, worker)
        _mark(held, wanted)
        _say(wanted, "added")
        return "added"

    async def _confined(self, wanted: Wanted) -> tuple[WorkerSpec, Confined | None]:
        """Return the settings with checked addresses. Raises NotPermitted, BadRequest."""
        if not wanted.addresses:
            return wanted.spec, None
        allowed = self._allowed or Allowed(map(ip_network, wanted.addresses))
        confined = await Confined.at(allowed, wanted.spec)
        return await confined.spec(wanted.spec), confined

    def _is_refused(self, place: Place, wanted: Wanted) -> bool:
        return self._refused.get(place, (None, ""))[0] == wanted

    def _refuse(self, place: Place, wanted: Wanted, error: RouterError) -> None:
        if self._refused.get(place, (None, ""))[1] != error.message:
            _log.error("discovery: worker %s is left out: %s", wanted.spec.url, error.message)
        self._refused[place] = wanted, error.message


def _say(wanted: Wanted, what: str) -> None:
    """Say what has become of a worker that has a name beside its URL: afterwards only the URL is seen."""
    if wanted.name:
        _log.info("worker %s: %s, %s", wanted.spec.url, what, wanted.name)


def _mark(held: _Held, wanted: Wanted) -> None:
    """Keep new requests away from a worker, or let them come; an operator's drain is left alone."""
    before, held.wanted = held.wanted.away, wanted
    if held.worker.drained in {"", before}:
        held.worker.drain(wanted.away)
