from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.engine.playbook import Playbook, held_tiers, replayed_tiers
from workers.engine import control
from workers.engine.dialect import VLLM
from workers.engine.hicache import TierConfig
from workers.engine.loops import LOOPS
from workers.engine.memory import TreeMemory
from workers.engine.namespace import Namespace
from workers.engine.node import below

if TYPE_CHECKING:
    from workers.engine.request import Request

_prompts = st.builds(
    lambda head, length, tail: [*([head] * length), *tail],
    st.integers(0, 2),
    st.integers(1, 40),
    st.lists(st.integers(0, 3), max_size=12),
)
_requests = st.tuples(
    st.just("request"), _prompts, st.integers(1, 30), st.sampled_from([None, "salt"]), st.integers(0, 6)
)
_steps = st.one_of(
    _requests,
    _requests,
    st.tuples(st.just("pause"), st.sampled_from(["abort", "retract", "in_place"])),
    st.tuples(st.just("iterate"), st.integers(1, 8)),
    st.tuples(st.sampled_from(["resume", "flush", "settle", "abort", "wait_for_copy", "sync"])),
)
_tiers = st.one_of(
    st.none(),
    st.builds(
        TierConfig,
        host=st.sampled_from([0.3, 1.0, 3.0]),
        storage=st.sampled_from([0.0, 4.0]),
        write_through=st.integers(1, 3),
        load_back=st.sampled_from([1, 16]),
        prefetch=st.sampled_from([4, 16]),
        host_bandwidth=st.sampled_from([1e9, 1e12]),
        storage_bandwidth=st.sampled_from([1e8, 1e12]),
    ),
)


def _apply(play: Playbook, requests: list[Request], step: tuple[Any, ...]) -> None:
    match step:
        case ("request", prompt, max_new, salt, iterations):
            requests.append(play.request(prompt, max_new, Namespace(cache_salt=salt)))
            _iterate(play, iterations)
        case ("iterate", iterations):
            _iterate(play, iterations)
        case ("pause", mode):
            play.pause(mode)
        case ("resume" | "flush" | "settle" | "wait_for_copy" as name,):
            getattr(play, name)()
        case ("sync",):
            play.pause("retract")
            play.iterate()
            play.flush()
            play.resume()
        case ("abort",):
            play.complete()
            for request in requests[-1:]:
                control.abort(play.rank, request)


def _iterate(play: Playbook, iterations: int) -> None:
    for _ in range(iterations):
        play.iterate()


def _check_tree(memory: TreeMemory) -> None:
    tree = memory.cache
    nodes = [node for node in below(tree.root) if node is not tree.root]
    assert tree.free >= 0
    assert tree.resident == sum(len(node.digests) for node in nodes if node.device)
    assert tree.evictable == sum(len(node.digests) for node in nodes if node.device and not node.locks)
    assert tree.host_used <= tree.host_capacity
    for node in nodes:
        above = node.parent
        assert above is not None
        assert node.device or node.host
        assert above is tree.root or above.device or not node.device
        assert not node.host or above is tree.root or above.host
        assert node.device_children == sum(child.device for child in node.children.values())


def _run(play: Playbook, steps: list[tuple[Any, ...]]) -> None:
    requests: list[Request] = []
    for step in steps:
        _apply(play, requests, step)
        if isinstance(play.rank.memory, TreeMemory):
            _check_tree(play.rank.memory)
    play.resume()
    play.settle()
    play.run([7])
    assert all(request.finish for request in requests)
    kept = play.rank.events.pending  # by vLLM, until its next step
    assert not kept or play.rank.config.dialect is VLLM
    assert replayed_tiers([*play.events(), *kept]) == held_tiers(play.rank)
    assert (play.rank.memory.held, play.rank.memory.promised) == (0, 0)
    assert not isinstance(play.rank.memory, TreeMemory) or play.rank.memory.hoped == 0
    assert play.rank.idle()


@settings(max_examples=200)
@given(
    steps=st.lists(_steps, max_size=25),
    page_size=st.sampled_from([1, 4, 16]),
    loop=st.sampled_from(list(LOOPS)),
    paused_loop=st.sampled_from(["legacy", "publishing"]),
    chunk=st.sampled_from([16, 48, 8192]),
    bigram=st.booleans(),
    tiers=_tiers,
)
def test_replaying_all_published_events_gives_exactly_the_blocks_that_each_tier_holds(
    steps: list[tuple[Any, ...]],
    page_size: int,
    loop: str,
    paused_loop: Any,
    chunk: int,
    bigram: bool,
    tiers: TierConfig | None,
) -> None:
    play = Playbook(
        loop=loop,
        page_size=page_size,
        capacity_tokens=160,
        paused_loop=paused_loop,
        chunk_tokens=chunk,
        bigram=bigram,
        tiers=tiers,
    )
    _run(play, steps)
    if isinstance(play.rank.memory, TreeMemory) and play.rank.memory.hicache is not None:
        held = held_tiers(play.rank).get("CPU_PINNED", [])
        assert play.tree.host_used == len(held)


@settings(max_examples=120)
@given(
    steps=st.lists(_steps, max_size=25),
    page_size=st.sampled_from([1, 4, 16]),
    chunk=st.sampled_from([16, 48, 8192]),
    offload=st.one_of(st.none(), st.builds(TierConfig, host=st.sampled_from([0.2, 2.0]))),
)
def test_vllm_copies_are_announced_and_removed_one_by_one(
    steps: list[tuple[Any, ...]], page_size: int, chunk: int, offload: TierConfig | None
) -> None:
    play = Playbook(dialect=VLLM, page_size=page_size, capacity_tokens=160, chunk_tokens=chunk, tiers=offload)
    _run(play, steps)
