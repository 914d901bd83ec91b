"""Prefill and decode on two workers: the queues a request passes on either side.

SGLang 0.5.23: a prefill worker holds a request until the decode worker has asked for its room, computes the
prompt, and sends the KV; a decode worker first finds memory, then asks, then decodes. vLLM 0.32's decode
side is the same but for the last prompt token, which it computes itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers.engine.admission import Step, count_hit, decode_step, merge, next_step
from workers.engine.results import emit
from workers.engine.transfers import Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.engine.rank import Rank
    from workers.engine.request import Request


class PrefillSide:
    """`bootstrap`: not asked for when an iteration last looked; `computing`: prompts in a batch to their end.

    `inflight`: prompts whose KV is on its way, held until an iteration sees that it is there. `seconds`: how
    long the KV of so many tokens travels.
    """

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self.bootstrap: list[Request] = []
        self.computing: list[Request] = []
        self.inflight: Line[Request] = Line()
        self._asked: set[int] = set()
        self._seconds = seconds

    @property
    def idle(self) -> bool:
        """Whether all three are empty."""
        return not (self.bootstrap or self.computing or len(self.inflight))

    @property
    def queued(self) -> list[Request]:
        """The requests that no batch computes now or will until something happens elsewhere."""
        return [*self.bootstrap, *self.inflight.items]

    def submit(self, rank: Rank, request: Request) -> None:
        """Queue a request, behind the handshake if it has a room."""
        if request.room is None:
            rank.queue(request)
        else:
            self.bootstrap.append(request)

    def ask(self, room: int) -> None:
        """Note that the decode worker is ready to receive a room; a paused rank does nothing about it."""
        self._asked.add(room)

    def send(self, request: Request, now: float) -> None:
        """Begin to send a prompt's KV, and tell the edge when it will be there: no iteration has to look."""
        request.sends(self.inflight.start(request, self._seconds(request.prompt_tokens), now))

    def forget(self, request: Request) -> bool:
        """Take a request out of these queues; return whether it was in one."""
        if request in self.bootstrap:
            self.bootstrap.remove(request)
            self._asked.discard(request.room or 0)
            return True
        return self.inflight.drop(request)

    def pump(self, rank: Rank, now: float) -> None:
        """Queue the requests that have been asked for, and end those whose KV has arrived."""
        if self._asked:
            self._queue_asked(rank)
        self.inflight.advance(now)
        for request in self.inflight.reap():
            rank.end(request, "length")

    def _queue_asked(self, rank: Rank) -> None:
        asked = [request for request in self.bootstrap if request.room in self._asked]
        self.bootstrap = [request for request in self.bootstrap if request not in asked]
        self._asked.difference_update(request.room for request in asked if request.room is not None)
        for request in asked:
            rank.queue(request)


class DecodeSide:
    """The queues of a worker whose prompts are computed elsewhere.

    `prealloc`: no memory yet; `transfer`: KV on its way, or `arrived` since the last iteration;
    `retracted`: KV saved aside, to be taken up again.
    """

    def __init__(self) -> None:
        self.prealloc: list[Request] = []
        self.transfer: list[Request] = []
        self.retracted: list[Request] = []
        self.arrived: list[Request] = []

    @property
    def idle(self) -> bool:
        """Whether all queues are empty."""
        return not (self.prealloc or self.transfer or self.retracted)

    def forget(self, request: Request) -> bool:
        """Take a request out of these queues; return whether it was in one."""
        for queue in (self.prealloc, self.transfer, self.retracted):
            if request in queue:
                queue.remove(request)
                return True
        return False

    def pump(self, rank: Rank) -> None:
        """Move requests on: what was retracted first, then new ones, then what has arrived."""
        while self.retracted and rank.memory.admit(self.retracted[0], rank.new_token_ratio):
            request = self.retracted.pop(0)
            _restore(rank, request, len(request.sequence) - 1)
            rank.running = [*rank.running, request]
        while self.prealloc and rank.memory.admit(self.prealloc[0], rank.new_token_ratio):
            self._receive(rank, self.prealloc.pop(0))
        arrived = [request for request in self.arrived if request in self.transfer]
        self.arrived.clear()
        for request in arrived:
            self.transfer.remove(request)
            rank.memory.store(request, request.computed)
        rank.waiting.extendleft(reversed(arrived))

    def _receive(self, rank: Rank, request: Request) -> None:
        count_hit(rank, request)
        whole = rank.config.role == "decode"
        _restore(rank, request, len(request.sequence) - (not whole))
        self.transfer.append(request)
        request.pull()


def _restore(rank: Rank, request: Request, computed: int) -> None:
    request.computed = computed
    rank.memory.grow(request)


def prefill_step(rank: Rank, now: float) -> Step | None:
    """Return the next batch of a prefill worker."""
    if rank.prefill is not None:
        rank.prefill.pump(rank, now)
    return next_step(rank, now)


def decode_only_step(rank: Rank, _now: float) -> Step | None:
    """Return the next batch of a decode worker: prompts that have arrived join at once, none is computed."""
    if rank.decode is not None:
        rank.decode.pump(rank)
    merge(rank)
    while rank.waiting and len(rank.running) < rank.config.max_running:
        request = rank.waiting.popleft()
        if not emit(rank, request):
            rank.running = [*rank.running, request]
    return decode_step(rank)


def unified_step(rank: Rank, now: float) -> Step | None:
    """Return the next batch of a worker that does both; some of its prompts may come from another worker."""
    if rank.decode is not None:
        rank.decode.pump(rank)
    return next_step(rank, now)
