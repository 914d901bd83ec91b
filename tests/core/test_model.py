"""Views and index against a simple oracle, over random fleets and everything that engines say.

KV_ROUTER_LONG=1 runs 10,000 examples.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from router.core.blocks import Namespace, block_keys, namespace_root, pack_tokens
from router.core.events import Batch, Cleared, Event, Hash, Stored
from router.core.index import Index
from router.core.view import View
from tests.core.frames import BLOCK_SIZE, removed, stored
from tests.core.oracle import FULL, Oracle, Path, Place, Run, Space

if TYPE_CHECKING:
    from array import array

    from router.core.match import Match

LONG = bool(os.environ.get("KV_ROUTER_LONG"))
SPACES: list[Space] = [(None, None), ("ad", None), ("ad2", None), (None, "salt")]
TTL = 30.0
TIERS = ("GPU", "CPU", "DISK")
# Each rank: model, whether it counts copies, and how its engine makes hashes.
RANKS = (("a", False, ""), ("a", False, ""), ("a", False, "swapped"), ("b", False, ""), ("a", True, "own"))

ranks = st.integers(0, len(RANKS) - 1)
paths = st.tuples(st.sampled_from(SPACES), st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple))
places = st.tuples(st.sampled_from(TIERS), st.sampled_from([0, 0, 0, 1]))


def tokens(blocks: tuple[int, ...]) -> list[int]:
    return [block for block in blocks for _ in range(BLOCK_SIZE)]


class Fleet(RuleBasedStateMachine):
    """Five ranks of two models under one index."""

    bound = 1 << 20

    def __init__(self) -> None:
        super().__init__()
        self.index = Index(self.bound)
        self.views = [self.view(model, copies=copies) for model, copies, _ in RANKS]
        self.oracles = [Oracle(copies, TTL) for _, copies, _ in RANKS]
        self.first_groups: list[int | None] = [None] * len(RANKS)
        self.now = 0.0
        self.seen: set[Path] = set()
        self.numbers: dict[object, int] = {}

    def view(self, model: str, *, copies: bool) -> View:
        return View(self.index, model, block_size=BLOCK_SIZE, counts_copies=copies, predicted_ttl=TTL)

    def hash_of(self, rank: int, path: Path) -> Hash:
        """Number paths as the rank's engine does; with adapters by an id that is not the same everywhere."""
        (lora, salt), blocks = path
        how = RANKS[rank][2]
        if how == "own":
            return ((rank << 32) + self.numbers.setdefault((path), len(self.numbers))).to_bytes(32, "big")
        if how == "swapped":
            blocks = tuple({0: 1, 1: 0}.get(block, block) for block in blocks)
            lora = {"ad": "ad2", "ad2": "ad"}.get(lora or "", lora)
        return self.numbers.setdefault((lora, salt, blocks), len(self.numbers)) - 5

    def keys(self, rank: int, path: Path) -> array[int]:
        (lora, salt), blocks = path
        root = namespace_root(Namespace(RANKS[rank][0], lora, salt), BLOCK_SIZE)
        return block_keys(pack_tokens(tokens(blocks)), BLOCK_SIZE, root)

    def apply(self, rank: int, event: Event) -> None:
        self.views[rank].apply(Batch(self.now, [event], 0))

    def see(self, path: Path) -> None:
        space, blocks = path
        self.seen |= {(space, blocks[:end]) for end in range(1, len(blocks) + 1)}

    @initialize(longer=st.booleans())
    def begin(self, longer: bool) -> None:
        """Have some prompts everywhere, so that there is something to share."""
        for rank in range(len(RANKS) if longer else 0):
            self.store(rank, (SPACES[0], (0, 1, 2, 0)), 0, ("GPU", 0), 5.0)

    @rule(rank=ranks, path=paths, start=st.integers(0, 3), place=places, later=st.sampled_from([0.0, 5.0]))
    def store(self, rank: int, path: Path, start: int, place: Place, later: float) -> None:
        self.now += later
        self.see(path)
        run = Run(path, start % len(path[1]), place)
        conflicts, had_orphans = self.views[rank].resets["hash_conflict"], bool(self.oracles[rank].orphans)
        self.apply(rank, self.event(rank, run))
        if self.views[rank].resets["hash_conflict"] > conflicts:
            assert RANKS[rank][2] != "own"
            if had_orphans:
                # One that the store has joined may be what disagreed: the view has begun anew with that one,
                # without what came before. A history would tell; here both forget all.
                self.forget(rank, "restart")
                return
            self.oracles[rank].reset()
            self.first_groups[rank] = None
        self.first_groups[rank] = place[1] if self.first_groups[rank] is None else self.first_groups[rank]
        self.oracles[rank].store(run, self.now)

    def event(self, rank: int, run: Run) -> Stored:
        (lora, salt), blocks = run.path
        return stored(
            [self.hash_of(rank, block) for block in run.blocks],
            tokens(blocks[run.start :]),
            self.hash_of(rank, run.parent) if run.parent is not None else None,
            tier=run.place[0],
            group=run.place[1],
            kind=FULL,
            lora=lora,
            cache_salt=salt,
        )

    @rule(rank=ranks, some=st.lists(paths, min_size=1, max_size=4), place=places)
    def remove(self, rank: int, some: list[Path], place: Place) -> None:
        self.apply(rank, removed([self.hash_of(rank, path) for path in some], tier=place[0], group=place[1]))
        self.oracles[rank].remove(some, place)

    @rule(rank=ranks, path=paths, place=places)
    def remove_all_of_a_prompt(self, rank: int, path: Path, place: Place) -> None:
        self.remove(rank, [(path[0], path[1][:end]) for end in range(len(path[1]), 0, -1)], place)

    @rule(rank=ranks, some=st.lists(paths, min_size=1, max_size=3), place=places)
    def lift(self, rank: int, some: list[Path], place: Place) -> None:
        known = [path for path in some if self.oracles[rank].knows(path)]
        hashes = [self.hash_of(rank, path) for path in some]
        self.apply(rank, stored(hashes, [], tier=place[0], group=place[1], kind=FULL, block_size=0))
        self.oracles[rank].lift(some, place)
        if known and self.first_groups[rank] is None:
            self.first_groups[rank] = place[1]

    @rule(rank=ranks, by=st.sampled_from(["clear", "restart", "replace"]))
    def forget(self, rank: int, by: str) -> None:
        if by == "clear":
            self.apply(rank, Cleared())
        elif by == "restart":
            self.views[rank].reset("restart")
        else:
            self.views[rank].close()
            self.views[rank] = self.view(RANKS[rank][0], copies=RANKS[rank][1])
        self.oracles[rank].reset()
        self.first_groups[rank] = None

    @rule(rank=ranks, path=paths, start=st.integers(0, 5))
    def predict(self, rank: int, path: Path, start: int) -> None:
        self.see(path)
        self.views[rank].predicted.add(self.keys(rank, path)[start:], self.now)
        for end in range(start + 1, len(path[1]) + 1):
            self.oracles[rank].predicted[path[0], path[1][:end]] = self.now + TTL

    @rule(later=st.sampled_from([1.0, 20.0]))
    def expire(self, later: float) -> None:
        self.now += later
        for view, oracle in zip(self.views, self.oracles, strict=True):
            view.predicted.expire(self.now)
            oracle.predicted = {path: end for path, end in oracle.predicted.items() if end > self.now}

    @rule(rank=ranks, path=paths, found=st.integers(0, 5))
    def contradict(self, rank: int, path: Path, found: int) -> None:
        self.views[rank].contradict(self.keys(rank, path), found)
        self.oracles[rank].contradict(path, found)

    @rule(portion=st.sampled_from([1, 3, 1000]))
    def sweep(self, portion: int) -> None:
        self.index.sweep(portion)

    def ends(self) -> list[Path]:
        """Of the prompts seen, those that are not the beginning of another."""
        inner = {(space, blocks[:-1]) for space, blocks in self.seen}
        return sorted(self.seen - inner, key=str)

    def matches(self, path: Path) -> list[tuple[Match, int]]:
        of_model = {RANKS[rank][0]: self.index.match(self.keys(rank, path)) for rank in (0, 3)}
        return [(of_model[rank[0]], view.slot) for rank, view in zip(RANKS, self.views, strict=True)]

    @invariant()
    def agrees(self) -> None:
        """Every rank is shown exactly what it holds, at every prefix."""
        for path in self.ends():
            for rank, (found, slot) in enumerate(self.matches(path)):
                oracle = self.oracles[rank]
                assert found.held.get(slot, 0) == oracle.depth(path), (rank, path)
                assert found.reach.get(slot, 0) == oracle.depth(path, expected=True), (rank, path)
        for rank, oracle in enumerate(self.oracles):
            counted = {tier: count for tier, count in self.views[rank].blocks().items() if count}
            expected = oracle.blocks(self.first_groups[rank] or 0)
            assert counted == {tier: count for tier, count in expected.items() if count}
            assert len(self.views[rank].predicted) == len(oracle.predicted)

    def teardown(self) -> None:
        """When all ranks are gone, nothing is left."""
        for view in self.views:
            view.close()
        while self.index.sweep(7):
            pass
        assert (self.index.blocks, self.index.predicted, len(self.index.states)) == (0, {}, 1)


class SmallFleet(Fleet):
    """The same with too little room: what is given up is missing, and nothing is there that should not be."""

    bound = 12

    @rule(
        rank=ranks,
        some=st.lists(paths, min_size=1, max_size=3),
        place=st.tuples(st.sampled_from(TIERS), st.just(0)),
    )
    def lift(self, rank: int, some: list[Path], place: Place) -> None:
        """Not into a new group: that a rank has one is not learnt from a block that was given up."""
        super().lift(rank, some, place)

    @invariant()
    def agrees(self) -> None:
        for path in self.ends():
            for oracle, (found, slot) in zip(self.oracles, self.matches(path), strict=True):
                assert found.held.get(slot, 0) <= oracle.depth(path)
        assert self.index.blocks <= self.bound


COMMON = settings(
    max_examples=5000 if LONG else 40,
    stateful_step_count=40 if LONG else 25,
    suppress_health_check=list(HealthCheck),
)
pytestmark = pytest.mark.timeout(7200 if LONG else 120)
TestFleet = Fleet.TestCase
TestFleet.settings = COMMON
TestSmallFleet = SmallFleet.TestCase
TestSmallFleet.settings = COMMON


def test_an_orphan_may_be_what_does_not_agree_with_others() -> None:
    fleet = Fleet()
    fleet.begin(longer=False)
    for rank, blocks, start in ((0, (2, 0), 0), (2, (2, 0), 1), (2, (2,), 0)):
        fleet.store(rank, (SPACES[0], blocks), start, ("GPU", 0), 0.0)
        fleet.agrees()
    assert fleet.views[2].resets["hash_conflict"] == 1
