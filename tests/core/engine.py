"""A stand-in in virtual time behind a bad network, and the cursor and view that follow it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from router.core.blocks import Namespace as Space
from router.core.blocks import block_keys, namespace_root, pack_tokens
from router.core.cursor import Cursor
from router.core.index import Index
from router.core.steps import Apply, AskReplay, State, Step
from router.core.view import View
from router.core.wire import decode_batch
from workers.engine import control
from workers.engine.dialect import SGLANG, VLLM, VLLM_BYTES
from workers.engine.hicache import TierConfig
from workers.engine.namespace import PLAIN, Namespace
from workers.engine.rank import EngineConfig
from workers.engine.request import Request
from workers.engine.sequence import sequence_of
from workers.engine.wire import encode, sglang_array, sglang_map, vllm_array, vllm_map
from workers.simulate.worker import SimWorker

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from workers.engine.events import Batch, Event

PAGE = 4
SPACES = (PLAIN, PLAIN, Namespace(cache_salt="tenant"), Namespace("ad", 1))
CONFIGS = {
    "sglang": EngineConfig(SGLANG, PAGE, 400, chunk_tokens=64),
    "sglang legacy": EngineConfig(SGLANG, PAGE, 400, chunk_tokens=64, paused_loop="legacy"),
    "sglang pairs": EngineConfig(SGLANG, PAGE, 400, chunk_tokens=64, bigram=True),
    "sglang tiers": EngineConfig(SGLANG, PAGE, 240, tiers=TierConfig(host=2.0, storage=4.0, prefetch=16)),
    "vllm": EngineConfig(VLLM, PAGE, 400, chunk_tokens=64),
    "vllm bytes": EngineConfig(VLLM_BYTES, PAGE, 240, chunk_tokens=64),
}
SHAPES: dict[str, tuple[Callable[[Event], object], ...]] = {
    "sglang": (sglang_map, sglang_array),
    "vllm": (vllm_map, vllm_array),
}


# A namespace, and token ids.
Prompt: TypeAlias = tuple[Namespace, list[int]]


@dataclass
class Network:
    """Shares of batches lost, told twice and late; of replays that are not answered in time."""

    lose: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    unanswered: float = 0.0


class Followed:
    """One engine process after the other on the same address, and what a router makes of it."""

    def __init__(self, name: str, rng: Random, network: Network, *, history: int | None) -> None:
        """`history`: batches that a replay has, None: there is no replay."""
        self.rng = rng
        self.network = network
        self.calm = False
        self.now = 0.0
        self.config = CONFIGS[name]
        self._shape = rng.choice(SHAPES[name.partition(" ")[0]])
        self._history: deque[tuple[int, bytes]] = deque(maxlen=history)
        self._late: list[tuple[int, bytes]] = []
        self._made = self.seq = 0
        self.view = View(Index(), "m", block_size=PAGE, bigram=self.config.bigram, counts_copies=self.is_vllm)
        self.cursor = Cursor(can_replay=history is not None)
        self.worker = self._process()
        self.carry_out(self.cursor.connect(0.0))

    @property
    def is_vllm(self) -> bool:
        return self.config.dialect.holds_blocks

    def _process(self) -> SimWorker:
        self.seq = 0
        self._history.clear()
        self._late.clear()
        return SimWorker(self.config, publishes=self._published, tells=lambda _request, _now: None)

    def _published(self, batch: Batch) -> None:
        # Wall clocks do not stand still between two batches of a process, nor between two processes.
        said = replace(batch, ts=self.now + self._made * 1e-6)
        self._made += 1
        message = self.seq, encode(said, 0, self._shape)
        self.seq += 1
        self._history.append(message)
        draw, net = self.rng.random(), self.network
        if self.calm or draw >= net.lose + net.twice + net.late:
            self.deliver(*message)
        elif draw < net.twice:
            self.deliver(*message)
            self.deliver(*message)
        elif draw < net.twice + net.late:
            self._late.append(message)

    def deliver(self, seq: int, payload: bytes) -> None:
        batch = decode_batch(payload)
        assert not batch.undecodable
        if self.cursor.follows(seq, batch, self.now):
            self.view.apply(batch)
        else:
            self.carry_out(self.cursor.live(seq, batch, self.now))

    def carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Apply):
                self.view.apply(step.batch)
            elif isinstance(step, AskReplay):
                self._replay(step.start)
            else:
                self.view.reset(step.cause)

    def _replay(self, start: int) -> None:
        if not self.calm and self.rng.random() < self.network.unanswered:
            self.carry_out(self.cursor.replay_ended(self.now, "no answer"))
            return
        for seq, payload in [message for message in self._history if message[0] >= start]:
            if self.cursor.state is State.REPLAYING:
                self.carry_out(self.cursor.replayed(seq, decode_batch(payload), self.now))
        self.carry_out(self.cursor.replay_ended(self.now))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.worker.run(self.now)

    def post(self, what: Callable[[float], object]) -> None:
        self.worker.post(lambda now: (what(now), None)[1], self.now)

    def prompt(self) -> Prompt:
        """Return a prompt that shares much with others."""
        rng, group = self.rng, self.rng.randrange(4)
        shared = [group + 1] * PAGE * rng.randrange(1, 8)
        own = [10 + group + rng.randrange(5)] * rng.randrange(1, 30)
        # Older arrays of SGLang do not name adapters.
        return rng.choice(SPACES[: 3 if self._shape is sglang_array else 4]), shared + own

    def ask(self, space: Namespace, tokens: list[int], output: int) -> None:
        sequence = sequence_of(tokens, PAGE, space, bigram=self.config.bigram)
        self._made += 1
        self.worker.submit(Request(str(self._made), sequence, output, eager=True), self.now)

    def restart(self) -> None:
        """Another process takes the place of this one."""
        self.wait(0.01)
        self.worker = self._process()
        self.carry_out(self.cursor.linked(self.now, again=True))

    def reset_views(self, cause: str, *, until_word: bool = False) -> None:
        """Empty the view from outside, as the fleet does."""
        self.view.reset(cause)
        self.cursor.forget(self.now, until_word=until_word)

    def sync(self, mode: control.PauseMode) -> None:
        """Pause, flush and continue without the router, which looks twice."""
        self.post(lambda now: control.pause(self.worker.rank, mode, now))
        self.wait(0.01)
        if self.is_vllm:
            self.reset_views("paused")
        flushed: list[bool] = []
        self.post(lambda _now: flushed.append(control.flush(self.worker.rank)))
        self.wait(0.01)
        if any(flushed) and any(self.view.blocks().values()):
            self.reset_views("weights_changed", until_word=True)
        self.post(lambda _now: control.resume(self.worker.rank))
        self.wait(0.0)
        if self.is_vllm:
            self.reset_views("paused", until_word=True)

    def flush(self) -> None:
        """Empty an idle engine's cache on a network that does nothing wrong."""
        self.calm = True
        self.post(lambda _now: control.flush(self.worker.rank))
        self.settle()

    def heal(self) -> None:
        """Do what the router does now and then, while replays are answered."""
        self.calm = True
        self.carry_out(self.cursor.heal(self.now))
        self.calm = False

    def settle(self) -> None:
        """Let all that is under way end, on a network that does nothing wrong any more."""
        self.calm = True
        for message in self._late:
            self.deliver(*message)
        self._late.clear()
        while self.worker.rank.requests() or not self.worker.rank.idle():
            self.wait(1.0)
        # What an idle vLLM has to tell comes with its next step, a gap at the end shows with the next batch.
        self.ask(PLAIN, [self._made + 1000] * (2 * PAGE + 1), 1)
        for _ in range(5):
            self.wait(1.0)
        while self.view.busy or self.view._index.sweep(1000):
            self.view._index.sweep(1000)
        self.calm = False

    def held(self, space: Namespace, tokens: list[int]) -> tuple[int, int]:
        """Return how many blocks of a prompt the view says are held, and how many are."""
        root = namespace_root(Space("m", space.lora_name, space.cache_salt), PAGE, bigram=self.config.bigram)
        keys = block_keys(pack_tokens(tokens), PAGE, root, bigram=self.config.bigram)
        claimed = self.view._index.match(keys).held.get(self.view.slot, 0)
        sequence = sequence_of(tokens, PAGE, space, bigram=self.config.bigram)
        hashes = list(map(self.config.dialect.form, sequence.digests_of(len(tokens))))
        there = set().union(*self.worker.rank.memory.tiers().values())
        real = next((n for n, block in enumerate(hashes) if block not in there), len(hashes))
        return claimed, real

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the number of blocks by tier that the view says are held, and those that are."""
        real = {tier: len(set(blocks)) for tier, blocks in self.worker.rank.memory.tiers().items()}
        return (
            {tier: count for tier, count in self.view.blocks().items() if count},
            {tier: count for tier, count in real.items() if count},
        )
