"""One worker: its settings, what it said of itself, its state, and its ranks with their streams."""

from __future__ import annotations

import logging
import time
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from router.core.counts import StreamCounts
from router.core.rank import Rank
from router.engines.detect import ENGINES
from router.fleet.health import Health
from router.fleet.resets import cuts_seen, reset, reset_views, restarts_seen
from router.observe.logs import fields
from router.observe.resets import note
from router.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import zmq

    from router.core.breaker import BreakerRules
    from router.core.index import Index
    from router.core.ledger import Load
    from router.core.view import View
    from router.engines.description import Description
    from router.fleet.limits import ViewLimits
    from router.fleet.parts import Parts
    from router.fleet.spec import WorkerSpec
    from router.observe.resets import Resets
    from router.proxy.upstream import Upstream
    from router.streams.turns import Turns

_log = logging.getLogger(__name__)
# In tokens, for the predicted blocks of a worker that publishes no events and names no block size.
APPROXIMATE_BLOCK_SIZE = 16


class WorkerState(StrEnum):
    """starting: never been up. ready: takes requests. paused: up, but its scheduler stands still.

    draining: takes no new requests. failed: was up and does not answer.
    """

    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    DRAINING = "draining"
    FAILED = "failed"


_BAD = frozenset({WorkerState.FAILED, WorkerState.STARTING})
_NOT_ASKED = "not asked yet"


class Worker:
    """`on_change` is called after each change of state or of what the worker is.

    `side` is for probes, discovery and control calls, which have time limits of their own. `renew` is called
    when the worker should be asked again who it is. `drained`: why the operator keeps requests away, "" when
    they do not. `controlled_at` is when a control call last changed its state, monotonic seconds; `clears`
    counts the control calls that have emptied its caches. `pins`: the headers that pin a request to a rank.
    `loads`: what is under way there, by rank, begun with what the worker that it replaces still has.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        upstream: Upstream,
        index: Index,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        limits: ViewLimits,
        on_change: Callable[[], None],
        *,
        side: Upstream,
        breaker: BreakerRules,
        turns: Turns,
        parts: Parts,
        resets: Resets,
        loads: Iterable[Load] = (),
    ) -> None:
        self.spec = spec
        self.url = spec.url
        self.upstream = upstream
        self.side = side
        self.state = WorkerState.STARTING
        self.why = _NOT_ASKED
        self.description: Description | None = None
        self.ranks: list[Rank] = []
        self.loads = list(loads)
        self.streams: list[Stream | None] = []
        self.pins: list[tuple[tuple[bytes, bytes], ...]] = []
        self.renew: Callable[[], None] = lambda: None
        self.health = Health(spec.url, breaker, on_change)
        self.drained = ""
        self.controlled_at = 0.0
        self._counts: list[StreamCounts] = []
        # How often streams had shown another process, and been cut off, when the worker was last asked.
        self._restarts: list[int] = []
        self._cuts: list[int] = []
        self.clears = 0
        self._index = index
        self._zmq = zmq_context
        self._turns = turns
        self._parts = parts
        self._resets = resets
        self._limits = limits
        self._on_change = on_change

    def become(self, state: WorkerState, why: str = "") -> None:
        """Change state; each change is one line in the log."""
        if state is self.state and why == self.why:
            return
        if state is not self.state or self.why == _NOT_ASKED:
            level = logging.WARNING if state in _BAD else logging.INFO
            said = fields("worker_state", worker=self.url, state=str(state), why=why)
            _log.log(level, "worker %s: %s%s", self.url, state, f" ({why})" if why else "", extra=said)
        self.state, self.why = state, why
        self._on_change()

    def drain(self, why: str) -> None:
        """Keep new requests away, as long as there is a reason; what the worker has goes on."""
        if why != self.drained:
            text = f"draining ({why})" if why else "not drained any more"
            _log.info("worker %s: %s", self.url, text, extra=fields("drain", worker=self.url, why=why))
            self.drained = why
            self._on_change()

    def shown(self) -> tuple[WorkerState, str]:
        """Return the state and its reason as they count for new requests."""
        if self.drained:
            return WorkerState.DRAINING, self.drained
        return self.state, self.why

    def requests(self) -> int:
        """Return how many requests of this process are under way there, whoever it was when they came."""
        return sum(load.own_requests for load in self.loads)

    def busy(self) -> bool:
        """Whether any request is, also one from before the worker became another."""
        return bool(self.requests() or self.upstream.busy)

    def adopt(self, description: Description) -> None:
        """Take what the worker says of itself; a new process, or other events, start its views anew.

        One that has failed, says nothing of when its process started (vLLM with several API servers), and
        has cut its events off meanwhile, counts as a new process.
        """
        old, self.description = self.description, description
        if old == description:
            if self.state is WorkerState.FAILED and description.started is None:
                self._restarted(
                    [now > before for before, now in zip(self._cuts, cuts_seen(self), strict=True)]
                )
            self._note_seen()
            return
        if old is None or old.shape != description.shape:
            self._replace(old, description)
        elif old.sources != description.sources:
            self._close_streams()
            reset_views(self, "reconfigured")
        elif old.started != description.started:
            self._restarted([True] * len(self.ranks))
        if not self.streams:
            self.streams = [self._stream(rank) for rank in range(description.dp)]
        self._note_seen()
        self._on_change()

    def _note_seen(self) -> None:
        self._restarts, self._cuts = restarts_seen(self), cuts_seen(self)

    def _replace(self, old: Description | None, new: Description) -> None:
        """Begin anew with views for what the worker is now."""
        if old is not None:
            _log.warning("worker %s is now %s on %s, dp %d", self.url, new.model, new.engine, new.dp)
        self._close_streams()
        self._close_views()
        self.ranks = [self._rank(rank) for rank in range(new.dp)]
        self._counts = [StreamCounts() for _ in range(new.dp)]
        self.pins = [ENGINES[new.engine].rank_headers(rank, new.dp) for rank in range(new.dp)]

    def _restarted(self, which: list[bool]) -> None:
        """Another process answers for some ranks: what their streams have not noticed is emptied now."""
        seen = zip(self.ranks, self.streams, self._restarts, restarts_seen(self), which, strict=True)
        for rank, stream, before, now, anew in seen:
            if now > before or not anew:
                continue
            reset(rank, "restart")
            if stream is not None:
                stream.close()
                self.streams[rank.rank] = self._stream(rank.rank)

    def stream(self, rank: int) -> Stream | None:
        """Return what feeds a rank's view."""
        return self.streams[rank] if rank < len(self.streams) else None

    def controlled(self, state: WorkerState, why: str = "") -> None:
        """Take the state that a control call has brought about; probes that began before it are void."""
        self.controlled_at = time.monotonic()
        self.become(state, why)

    def close(self) -> None:
        """Leave nothing behind: streams, views, ranks."""
        self.health.close()
        self._close_streams()
        self._close_views()

    def _rank(self, rank: int) -> Rank:
        view = self._view(rank)
        load = self._parts.load(view, self.loads[rank] if rank < len(self.loads) else None)
        self.loads[rank : rank + 1] = [load]
        return Rank(self.url, rank, view, load, breaker=self.health.breaker, owner=self)

    def _view(self, rank: int) -> View:
        said = self._described()
        has_events = said.sources[rank] is not None
        return self._parts.view(
            self.url,
            rank,
            self._index,
            said.model,
            block_size=said.block_size or (None if has_events else APPROXIMATE_BLOCK_SIZE),
            bigram=said.bigram,
            counts_copies=said.engine == "vllm",
            predicted_ttl=self._limits.predicted_ttl if has_events else self._limits.approximate_ttl,
            predicted_bound=self._limits.predicted_bound,
            on_reset=partial(note, self._resets, self.url, rank),
            on_loss=partial(self._lost, rank),
        )

    def _lost(self, rank: int) -> None:
        if (stream := self.stream(rank)) is not None:
            stream.damaged("its hashes are not those of its peers: what it held before is not known")

    def _stream(self, rank: int) -> Stream | None:
        source = self._described().sources[rank]
        if source is None:
            return None
        return Stream(
            self._zmq,
            source,
            self.ranks[rank].view,
            name=f"worker {self.url} rank {rank}",
            labels={"worker": self.url, "rank": rank},
            replay_seconds=self._limits.replay_seconds,
            rank=rank if self._described().dp > 1 else None,
            counts=self._counts[rank],
            turns=self._turns,
            on_restart=self.renew,
            cursor=partial(self._parts.cursor, self.ranks[rank].view),
        )

    def _described(self) -> Description:
        assert self.description is not None  # noqa: S101 - callers come from adopt()
        return self.description

    def _close_streams(self) -> None:
        for stream in self.streams:
            if stream is not None:
                stream.close()
        self.streams = []

    def _close_views(self) -> None:
        for rank in self.ranks:
            rank.view.close()
        self.ranks = []
