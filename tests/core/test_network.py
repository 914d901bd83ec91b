"""Cursor and view together, behind any network: what is live is right, what is not heals.

An engine that stores, evicts, clears and restarts publishes over a network that loses, repeats and delays
batches. Its own cache is the oracle.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.cursor import Cursor
from router.core.decide import gather
from router.core.events import Batch, Cleared, Event
from router.core.index import Index
from router.core.rank import Rank
from router.core.steps import Apply, AskReplay, State, Step
from router.core.view import View
from tests.core.frames import BLOCK_SIZE, removed, stored

PROMPTS = 8
LONG = bool(os.environ.get("KV_ROUTER_LONG"))
EXAMPLES = 10_000 if LONG else 300
pytestmark = pytest.mark.timeout(7200 if LONG else 120)


def tokens_of(block: int) -> list[int]:
    return [block + 1] * BLOCK_SIZE


def path(block: int) -> list[int]:
    """Block n's prefix in a binary tree: its ancestors and itself."""
    return [*path((block - 1) // 2), block] if block else [0]


@dataclass
class Engine:
    """A cache of tree blocks, and the history of what it has published."""

    process: int = 0
    clock: float = 0.0
    held: set[int] = field(default_factory=set)
    history: list[Batch] = field(default_factory=list)

    def hash_of(self, block: int) -> int:
        return self.process * 1000 + block

    def publish(self, *events: Event) -> tuple[int, Batch]:
        self.clock += 1.0
        self.history.append(Batch(self.clock, list(events), 0))
        return len(self.history) - 1, self.history[-1]

    def store(self, block: int) -> tuple[int, Batch]:
        new = [one for one in path(block) if one not in self.held]
        self.held |= set(new)
        events: list[Event] = []
        for one in new:
            parent = self.hash_of((one - 1) // 2) if one else None
            events.append(stored([self.hash_of(one)], tokens_of(one), parent))
        return self.publish(*events)

    def evict(self, block: int) -> tuple[int, Batch]:
        gone = {one for one in self.held if block in path(one)}
        self.held -= gone
        return self.publish(removed([self.hash_of(one) for one in sorted(gone)]))

    def clear(self) -> tuple[int, Batch]:
        self.held.clear()
        return self.publish(Cleared())

    def restart(self) -> tuple[int, Batch]:
        self.process += 1
        self.held.clear()
        self.history.clear()
        return self.publish(Cleared())


class Router:
    """One rank's cursor and view, fed by an engine through a network."""

    def __init__(self, engine: Engine, *, can_replay: bool) -> None:
        self.engine = engine
        self.index = Index()
        self.view = View(self.index, "m", block_size=BLOCK_SIZE)
        self.rank = Rank("w", 0, self.view)
        self.cursor = Cursor(can_replay=can_replay)
        self.carry_out(self.cursor.connect(0.0))

    def carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Apply):
                self.view.apply(step.batch)
            elif isinstance(step, AskReplay):
                self.replay(step.start)
            else:
                self.view.reset(step.cause)

    def replay(self, start: int) -> None:
        for seq in range(start, len(self.engine.history)):
            if self.cursor.state is State.REPLAYING:
                self.carry_out(self.cursor.replayed(seq, self.engine.history[seq], 0.0))
        self.carry_out(self.cursor.replay_ended(0.0))

    def deliver(self, seq: int, batch: Batch) -> None:
        self.carry_out(self.cursor.live(seq, batch, 0.0))

    def overlap(self, block: int, namespace: Namespace) -> int:
        ids = [token for one in path(block) for token in tokens_of(one)]
        prompt = PromptBlocks(pack_tokens([*ids, 99]), len(ids) + 1, namespace)
        return gather(self.index, [self.rank], prompt).candidates()[0].overlap_tokens // BLOCK_SIZE

    def expected(self, block: int) -> int:
        return next((n for n, one in enumerate(path(block)) if one not in self.engine.held), len(path(block)))

    def check_right(self) -> None:
        for block in range(PROMPTS * 2):
            assert self.overlap(block, Namespace("m")) == self.expected(block), block
        self.check_apart()

    def check_apart(self) -> None:
        for namespace in (Namespace("m", "ad"), Namespace("m", None, "salt"), Namespace("other")):
            assert all(self.overlap(block, namespace) == 0 for block in range(PROMPTS * 2))


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["store", "store", "store", "evict", "clear", "restart"]),
        st.integers(0, PROMPTS * 2 - 1),
        st.sampled_from(["deliver", "deliver", "lose", "twice", "late"]),
    ),
    min_size=1,
    max_size=30,
)


def drive(router: Router, operations: list[tuple[str, int, str]]) -> None:
    """Let the engine work and the network do what it does."""
    engine = router.engine
    late: list[tuple[int, Batch]] = []
    for name, block, fate in operations:
        if name in {"store", "evict"}:
            seq, batch = getattr(engine, name)(block)
        else:
            seq, batch = getattr(engine, name)()
        if name == "restart":
            late.clear()  # batches of a dead process's socket do not arrive any more
            router.carry_out(router.cursor.linked(0.0, again=True))
        if fate == "late":
            late.append((seq, batch))
        for _ in range({"deliver": 1, "twice": 2}.get(fate, 0)):
            router.deliver(seq, batch)
        if fate == "twice" and late:
            router.deliver(*late.pop())


@settings(max_examples=EXAMPLES)
@given(OPERATIONS)
def test_with_replay_the_view_equals_the_engines_cache_once_the_next_batch_has_come(
    operations: list[tuple[str, int, str]],
) -> None:
    router = Router(Engine(), can_replay=True)
    drive(router, operations)
    router.deliver(*router.engine.publish())
    assert router.cursor.state is State.LIVE
    router.check_right()


@settings(max_examples=EXAMPLES)
@given(OPERATIONS)
def test_without_replay_a_live_view_is_right_and_a_degraded_one_heals_with_the_next_clear(
    operations: list[tuple[str, int, str]],
) -> None:
    # A restart that no seq shows is found by the worker's start time; here restarts are left to that.
    steps = [step for step in operations if step[0] != "restart"]
    router = Router(Engine(), can_replay=False)
    router.deliver(*router.engine.publish())
    drive(router, steps)
    router.deliver(*router.engine.publish())
    router.check_apart()
    if router.cursor.state is State.LIVE:
        router.check_right()
    router.deliver(*router.engine.clear())
    assert router.cursor.state is State.LIVE
    router.check_right()
    router.deliver(*router.engine.store(3))
    router.check_right()


@settings(max_examples=EXAMPLES)
@given(OPERATIONS, st.integers(0, 30))
def test_nothing_published_before_a_flush_through_the_router_is_held_after_it(
    operations: list[tuple[str, int, str]], on_their_way: int
) -> None:
    router = Router(Engine(), can_replay=True)
    drive(router, operations)
    underway = [router.engine.store(n % PROMPTS) for n in range(on_their_way)]
    flushed = router.engine.clear()
    router.view.reset("flush")
    router.cursor.forget(0.0, until_clear=True)
    for seq, batch in underway:
        router.deliver(seq, batch)
        assert all(router.overlap(block, Namespace("m")) == 0 for block in range(PROMPTS * 2))
    router.deliver(*flushed)
    router.deliver(*router.engine.store(5))
    router.check_right()
