"""Doing in this process what an admin call has done in another one."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.errors import Busy, WorkerExists
from router.fleet.allowed import Confined
from router.fleet.control import Before, begin, end
from router.fleet.effects import Added, Begun, Drained, Effect, Ended, Removed
from router.fleet.resets import clears_seen, reset_views

if TYPE_CHECKING:
    from router.fleet.allowed import Allowed
    from router.fleet.fleet import Fleet
    from router.fleet.membership import Membership
    from router.fleet.worker import Worker


@dataclass(frozen=True, slots=True)
class _Call:
    """A control call that `origin` is making."""

    origin: str
    worker: Worker
    begun: Begun
    before: Before


class Follower:
    """Follows for one fleet. An effect on a worker that is not there is none."""

    def __init__(self, fleet: Fleet, membership: Membership, allowed: Allowed) -> None:
        self._fleet = fleet
        self._membership = membership
        self._allowed = allowed
        self._calls: dict[str, _Call] = {}

    async def follow(self, origin: str, effect: Effect) -> int:
        """Carry an effect out; return the requests that were cut by it."""
        if isinstance(effect, Added):
            self._add(effect)
            return 0
        worker = self._fleet.workers.get(effect.url)
        match effect:
            case Begun() if worker is not None:
                self._calls[effect.call] = _Call(origin, worker, effect, begin(worker, effect.action))
            case Ended() if worker is not None:
                self._end(worker, effect)
            case Drained() if worker is not None:
                with contextlib.suppress(Busy):
                    (self._membership.drain if effect.on else self._membership.undrain)(worker)
            case Removed() if worker is not None:
                return await self._membership.remove(worker, effect.seconds)
        return 0

    def gone(self, origin: str) -> None:
        """End the calls of a process that has died: nobody knows what came of them, so nothing is held."""
        for call in [call for call in self._calls.values() if call.origin == origin]:
            ended = Ended(
                call.begun.call, call.worker.url, call.begun.action, answered=False, ok=False, cleared=False
            )
            self._end(call.worker, ended)
            reset_views(call.worker, call.begun.action)

    def _add(self, added: Added) -> None:
        spec, address = added.spec, added.address
        confined = None if address is None else Confined(self._allowed, spec.host, address)
        with contextlib.suppress(WorkerExists):
            self._fleet.roster.enter(spec, confined)

    def _end(self, worker: Worker, ended: Ended) -> None:
        call = self._calls.pop(ended.call, None)
        before = Before(clears_seen(worker), worker.state) if call is None else call.before
        end(worker, before, ended)
