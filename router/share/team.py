"""One process among those of a router: what it asks the others for, and what they ask of it.

All calls go over the parent. A process that has not joined hears of nothing; when it joins it gets the fleet
as it is then, and hears of all that comes after.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from router.errors import BadRequest, Busy, RouterError, WorkerExists
from router.fleet.allowed import Allowed, Confined
from router.fleet.control import continue_left
from router.fleet.effects import Added, Drained, Effect, Removed
from router.observe.figures import Figures
from router.observe.rows import WorkerRow, workers_json
from router.observe.together import merged_rows
from router.share.doors import Doors
from router.share.follower import Follower
from router.share.line import FOLLOW_SECONDS, SHOW_SECONDS, CallFailed, Line, LineClosed
from router.share.mail import Mail
from router.share.names import name_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from router.api.keyfile import KeyFile
    from router.fleet.fleet import Fleet
    from router.fleet.membership import Membership
    from router.fleet.spec import WorkerSpec
    from router.fleet.worker import Worker
    from router.observe.exposition import Exposition
    from router.observe.sight import Share
    from router.reload import Reload
    from router.share.doors import Listener
    from router.share.seat import Seat
    from router.share.sharing import Sharing

T = TypeVar("T")

# What a call may take on top, over the parent.
_SLACK_SECONDS = 5.0
# How long a process lets those who have connected wait until it can serve them as the others do.
_READY_SECONDS, _LOOK_SECONDS = 5.0, 0.01
_EFFECTS = msgspec.msgpack.Decoder(list[Effect])
_FOLLOW = msgspec.msgpack.Decoder(tuple[str, Effect])
_FIGURES = msgspec.msgpack.Decoder(Figures)
_ROWS = msgspec.msgpack.Decoder(dict[int, list[WorkerRow]])
_log = logging.getLogger(__name__)


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
        self._line.call("serves").add_done_callback(_forget)
        await self._doors.start(listen)

    def keep_good(self, keys: KeyFile | None, reload: Reload) -> None:
        """Have the parent keep the keys and settings that hold, for processes that start later."""
        if keys is not None:
            keys.tell(partial(self._keep, "keys"))
        reload.on_taken = partial(self._keep, "settings")

    def _keep(self, what: str, good: object) -> None:
        assert self._line is not None  # noqa: S101 - it has joined
        self._line.call("good", (what, pickle.dumps(good))).add_done_callback(_forget)

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


async def _ask(line: Line, what: str, body: Any, seconds: float) -> msgspec.Raw:
    try:
        return await line.ask(what, body, seconds=seconds + _SLACK_SECONDS)
    except (LineClosed, CallFailed, TimeoutError) as error:
        raise RouterError("the other processes of the router could not be told") from error


class TeamCrew:
    """A `Crew` of several processes."""

    def __init__(self, line: Line, fleet: Fleet, membership: Membership, allowed: Allowed) -> None:
        self._line = line
        self._fleet = fleet
        self._membership = membership
        self._allowed = allowed

    async def add(self, spec: WorkerSpec) -> Worker:
        """See `Crew`."""
        if spec.bind:
            raise BadRequest("bind: expected false, several processes cannot have one address", param="bind")
        confined = await Confined.at(self._allowed, spec)
        spec = await confined.spec(spec)
        names = {name_of(url) for url in self._fleet.workers}
        if name_of(spec.url) in names or await self._change(Added(spec, confined.address)) is None:
            raise WorkerExists(f"the worker {spec.url} is there already", param="url")
        return self._fleet.workers[spec.url]

    async def drain(self, worker: Worker, *, on: bool) -> None:
        """See `Crew`."""
        (self._membership.drain if on else self._membership.undrain)(worker)
        await self._change(Drained(worker.url, on))

    async def remove(self, worker: Worker, seconds: float | None) -> int:
        """See `Crew`."""
        longest = self._membership.drain_seconds if seconds is None else seconds
        cut = await self._change(Removed(worker.url, longest), longest)
        return cut or 0

    async def tell(self, effect: Effect) -> None:
        """See `Crew`."""
        await _ask(self._line, "tell", effect, FOLLOW_SECONDS)

    async def sync(self, run: Coroutine[Any, Any, T]) -> T:
        """See `Crew`."""
        return await self._fleet.sync(self._sync(run))

    async def _sync(self, run: Coroutine[Any, Any, T]) -> T:
        if not msgspec.msgpack.decode(await _ask(self._line, "sync", True, SHOW_SECONDS)):
            run.close()
            raise Busy("another weight sync is under way")
        try:
            return await run
        finally:
            self._line.call("sync", False).add_done_callback(_forget)

    async def _change(self, effect: Effect, seconds: float = 0.0) -> int | None:
        """Have all processes follow, this one, too; None: it cannot be done."""
        raw = await _ask(self._line, "change", effect, seconds + FOLLOW_SECONDS)
        return msgspec.msgpack.decode(raw, type=int | None)


class TeamSight:
    """A `Sight` of several processes; of those that do not answer in time, what is known of them."""

    def __init__(self, line: Line, index: int, exposition: Exposition, share: Share) -> None:
        self._line = line
        self._index = index
        self._exposition = exposition
        self._share = share

    async def own(self, what: str) -> Figures | list[WorkerRow]:
        """Return what this process has to show of one kind."""
        return await (self._exposition.figures() if what == "figures" else self._exposition.rows())

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """See `Sight`."""
        own = await self._exposition.figures()
        try:
            together = _FIGURES.decode(await _ask(self._line, "figures", own, SHOW_SECONDS))
        except RouterError:
            together = own
        return await self._exposition.render(accept, together)

    async def workers(self) -> bytes:
        """See `Sight`."""
        return workers_json(await self.rows(), self._share())

    async def rows(self) -> list[WorkerRow]:
        """See `Sight`."""
        rows = {self._index: await self._exposition.rows()}
        try:
            rows |= _ROWS.decode(await _ask(self._line, "rows", None, SHOW_SECONDS))
        except RouterError:
            _log.warning("the workers are shown as one process sees them: the others could not be asked")
        return merged_rows([rows[index] for index in sorted(rows)])


def _forget(answer: asyncio.Future[msgspec.Raw]) -> None:
    """Nobody waits for it; that it failed is no news."""
    if not answer.cancelled():
        answer.exception()
