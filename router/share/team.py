"""One process among those of a router: what it asks the others for, and what they ask of it.

All calls go over the parent. A process that has not joined hears of nothing; when it joins it gets the fleet
as it is then, and hears of all that comes after.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from router.fleet.allowed import Allowed
from router.fleet.effects import Effect
from router.fleet.sync import continue_left
from router.share.crew import TeamCrew
from router.share.doors import Doors
from router.share.follower import Follower
from router.share.line import FOLLOW_SECONDS, Line, forget
from router.share.mail import Mail
from router.share.sight import TeamSight

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from router.api.keyfile import KeyFile
    from router.fleet.fleet import Fleet
    from router.fleet.membership import Membership
    from router.observe.exposition import Exposition
    from router.observe.sight import Share
    from router.reload import Reload
    from router.share.doors import Listener
    from router.share.seat import Seat
    from router.share.sharing import Sharing

# How long a process lets those who have connected wait until it can serve them as the others do.
_READY_SECONDS, _LOOK_SECONDS = 5.0, 0.01
_EFFECTS = msgspec.msgpack.Decoder(list[Effect])
_FOLLOW = msgspec.msgpack.Decoder(tuple[str, Effect])


class Team:
    """This process's seat, and its line to the parent."""

    def __init__(self, seat: Seat, line: socket.socket) -> None:
        self.seat = seat
        self._socket = line
        self._line: Line | None = None
        self._mail: Mail | None = None
        self._running: asyncio.Task[None] | None = None
        self._effects: list[Effect] = []
        self._fleet: Fleet | None = None
        self._follower: Follower | None = None
        self._sharing: Sharing | None = None
        self._sight: TeamSight | None = None
        self._crew: TeamCrew | None = None
        self._built = asyncio.Event()
        others = {place: file for place, file in enumerate(seat.listening) if place != seat.index}
        self._doors = Doors(others)

    async def join(self, on_parent_gone: Callable[[], None]) -> None:
        """Join, and hear what the operator has done to the fleet so far."""
        reader, writer = await asyncio.open_connection(sock=self._socket)
        self._line = Line(reader, writer, self._answer)
        self._running = asyncio.ensure_future(self._line.run())
        self._running.add_done_callback(lambda run: None if run.cancelled() else on_parent_gone())
        raw = await self._line.ask("join", seconds=FOLLOW_SECONDS)
        self._effects = _EFFECTS.decode(raw)

    def share(self, sharing: Sharing) -> None:
        """Have loads told to the others, and theirs heard."""
        self._sharing = sharing
        self._mail = Mail(
            asyncio.get_running_loop(),
            socket.socket(fileno=self.seat.inbox),
            [socket.socket(fileno=number) for number in self.seat.others],
            lambda payload: sharing.hear(payload, same_clock=True),
        )
        sharing.ways.append(self._mail.send)

    def crew(self, fleet: Fleet, membership: Membership) -> TeamCrew:
        """Return who carries out admin calls."""
        assert self._line is not None  # noqa: S101 - it has joined
        allowed = Allowed(self.seat.config.worker_allow)
        self._fleet, self._follower = fleet, Follower(fleet, membership, allowed)
        self._crew = TeamCrew(self._line, fleet, membership, allowed)
        return self._crew

    def sight(self, exposition: Exposition, share: Share) -> TeamSight:
        """Return who shows what all processes see."""
        assert self._line is not None  # noqa: S101 - it has joined
        self._sight = TeamSight(self._line, self.seat.index, exposition, share)
        return self._sight

    async def start(self) -> None:
        """Take part, now that everything is there; where others serve already, once it can serve as well."""
        assert self._follower is not None  # noqa: S101 - it has been built
        for effect in self._effects:
            await self._follower.follow("", effect)
        self._built.set()
        if self.seat.late:
            await self._until_ready()

    async def _until_ready(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _READY_SECONDS
        while self._fleet is not None and not self._fleet.ready and loop.time() < until:  # noqa: ASYNC110 - once
            await asyncio.sleep(_LOOK_SECONDS)

    async def serves(self, listen: Callable[[socket.socket], Awaitable[Listener]]) -> None:
        """Say that this process serves, and `listen` also where nobody does."""
        assert self._line is not None  # noqa: S101 - it has joined
        self._line.call("serves").add_done_callback(forget)
        await self._doors.start(listen)

    def keep_good(self, keys: KeyFile | None, reload: Reload) -> None:
        """Have the parent keep the keys and settings that hold, for processes that start later."""
        if keys is not None:
            keys.tell(partial(self._keep, "keys"))
        reload.on_taken = partial(self._keep, "settings")

    def _keep(self, what: str, good: object) -> None:
        assert self._line is not None  # noqa: S101 - it has joined
        self._line.call("good", (what, pickle.dumps(good))).add_done_callback(forget)

    def stopping(self) -> None:
        """Take no connections of others any more."""
        self._doors.close()

    def close(self) -> None:
        """Leave."""
        if self._mail is not None:
            self._mail.close()
        if self._running is not None:
            self._running.cancel()

    async def _answer(self, what: str, body: msgspec.Raw) -> Any:
        """Do what the parent asks for: some of it at once, the rest when all is there."""
        if what == "alive":
            return None
        if what == "vacant":
            return await self._doors.vacant(frozenset(msgspec.msgpack.decode(body, type=list[int])))
        await self._built.wait()
        return await self._do(what, body)

    async def _do(self, what: str, body: msgspec.Raw) -> Any:
        assert self._follower is not None  # noqa: S101 - it has been built
        assert self._sight is not None  # noqa: S101 - likewise
        if what == "follow":
            return await self._follower.follow(*_FOLLOW.decode(body))
        if what == "gone":
            self._gone(msgspec.msgpack.decode(body, type=str))
            return None
        if what == "continue":
            return await self._continue(msgspec.msgpack.decode(body, type=list[str]))
        if what == "names":
            return list(self._fleet.workers) if self._fleet is not None else []
        return await self._sight.own(what)

    async def _continue(self, urls: list[str]) -> None:
        """Continue workers that a process which is gone has paused."""
        if self._fleet is not None and self._crew is not None:
            workers = [self._fleet.workers[url] for url in urls if url in self._fleet.workers]
            await continue_left(workers, self._crew.tell)

    def _gone(self, sender: str) -> None:
        if self._sharing is not None:
            self._sharing.peers.forget(sender)
        if self._follower is not None:
            self._follower.gone(sender)
