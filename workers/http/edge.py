"""What the routes of one worker share: its ranks, its tokenizer, and what control calls have changed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TYPE_CHECKING
from uuid import uuid4

from workers.engine import control
from workers.engine.events import GPU
from workers.http.body import integer
from workers.http.errors import BadRequest
from workers.http.handover import Rooms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any, TypeVar

    from workers.driver import Driver
    from workers.engine.rank import Rank
    from workers.publisher import Endpoints
    from workers.spec import WorkerSpec
    from workers.tokenizer import Tokenizer

    T = TypeVar("T")

DEFAULT_WEIGHTS = "default"
_RANK_DIGITS = 9


@dataclass(slots=True)
class Edge:
    """One worker as its routes see it. `gate` is open while new requests may enter the engine."""

    spec: WorkerSpec
    drivers: list[Driver]
    tokenizer: Tokenizer
    endpoints: Endpoints | None
    started: float = field(default_factory=time)  # seconds since the epoch
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    paused_at: float | None = None  # monotonic seconds
    resumed: int = 0  # how often a pause was told to end
    sleep_level: int | None = None
    asleep: frozenset[str] = frozenset()  # memory that a sleep has put away, by vLLM's names
    updating: bool = False  # between the beginning and the end of a weight update (vLLM)
    flushing: bool = False
    weight_version: str = DEFAULT_WEIGHTS
    model_path: str = ""
    rooms: Rooms = field(init=False)
    handover_address: tuple[str, int] | None = None  # where prompts are handed over, if they are
    engine_id: str = field(default_factory=lambda: uuid4().hex)
    hold_pause: float = 0.0  # seconds that a pause outlasts its end, see `faults`
    live: int = 0  # requests between arrival and the end of their answer
    _next_rank: int = 0

    def __post_init__(self) -> None:
        self.gate.set()
        self.model_path = self.model_path or self.spec.model
        config = self.drivers[0].rank.config
        self.rooms = Rooms(self.spec.pair_seconds, config.transfer_seconds)

    def restarted(self, drivers: list[Driver]) -> None:
        """Forget what control calls have changed: these are the ranks of a new process."""
        self.drivers, self.started = drivers, time()
        self.paused_at = self.sleep_level = None
        self.asleep = frozenset()
        self.flushing = self.updating = False
        self.weight_version, self.model_path = DEFAULT_WEIGHTS, self.spec.model
        self.gate.set()
        self.rooms.close()

    @property
    def paused(self) -> bool:
        """Whether a pause is in force, in any mode."""
        return self.paused_at is not None

    @property
    def paused_seconds(self) -> float:
        """How long the pause in force has lasted; 0 without one."""
        return 0.0 if self.paused_at is None else monotonic() - self.paused_at

    async def end_pause(self) -> None:
        """Let all ranks and new requests go on; a plan of faults may make the pause last longer."""
        await asyncio.sleep(self.hold_pause)
        self.resumed += 1
        self.paused_at = None
        await self.every(lambda rank, _now: control.resume(rank))
        self.gate.set()

    def mark_paused(self) -> None:
        """Note that a pause has begun (or goes on)."""
        if self.paused_at is None:
            self.paused_at = monotonic()

    async def every(self, message: Callable[[Rank, float], T]) -> list[T]:
        """Apply a message to every rank between two of its iterations; return the answers by rank."""
        calls: list[Awaitable[T]] = [driver.call(message) for driver in self.drivers]
        return list(await asyncio.gather(*calls))

    def driver_for(self, headers: Mapping[str, str], body: dict[str, Any]) -> Driver:
        """Return the rank a request is pinned to, else the next in turn; raises BadRequest if wrong."""
        pinned: str | int | None = headers.get("x-data-parallel-rank")
        rank = _rank_of(str(pinned)) if pinned is not None else None
        if pinned is None and self.spec.engine == "sglang":
            pinned = rank = integer(body, "routed_dp_rank", None)
        if pinned is None:
            self._next_rank = (self._next_rank + 1) % len(self.drivers)
            return self.drivers[self._next_rank]
        if rank is None or not 0 <= rank < len(self.drivers):
            message = f"data_parallel_rank {pinned} is out of range [0, {len(self.drivers)})."
            raise BadRequest(message, param="routed_dp_rank")
        return self.drivers[rank]

    def adapter_id(self, name: str) -> int:
        """Return the engine's internal number of an adapter; raises BadRequest for one that is not loaded."""
        if name not in self.spec.adapters:
            message = f"The LoRA adapter `{name}` is not loaded."
            raise BadRequest(message, param="lora_path")
        return self.spec.adapters.index(name) + 1

    def truth(self) -> dict[str, Any]:
        """Return what every rank really holds; for tests only, no engine has this.

        `blocks` are those on the device, each once; `tiers` are all tiers by medium, with every copy;
        `cleared` is when they were emptied, in seconds since the epoch; `copying`: a copy between tiers has
        not ended yet, whether or not the scheduler will look at it.
        """
        return {"ranks": [_truth(driver) for driver in self.drivers]}


def _rank_of(header: str) -> int | None:
    """Return the number a header holds, None for anything else."""
    digits = header.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _RANK_DIGITS else None


def _truth(driver: Driver) -> dict[str, Any]:
    rank = driver.rank
    tiers = {medium: list(map(_plain, blocks)) for medium, blocks in rank.memory.tiers().items()}
    blocks = list(dict.fromkeys(tiers[GPU]))
    return {
        "rank": driver.number,
        "blocks": blocks,
        "tiers": tiers,
        "tokens": len(blocks) * rank.config.page_size,
        "running": len(rank.started()),
        "waiting": len(rank.waiting),
        "paused": rank.paused,
        "idle": rank.idle(),
        "copying": rank.memory.next_ack is not None,
        "pending": len(rank.events.pending),
        "cleared": [driver.wall + moment for moment in rank.cleared],
        "published": driver.publisher.seq if driver.publisher else 0,
    }


def _plain(block: int | bytes) -> int | str:
    return block.hex() if isinstance(block, bytes) else block
