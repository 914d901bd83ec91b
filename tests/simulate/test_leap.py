from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulate.fleets import run
from workers.engine.control import submit
from workers.engine.hicache import TierConfig
from workers.engine.rank import EngineConfig
from workers.engine.request import Request
from workers.engine.sequence import sequence_of
from workers.engine.timing import Profile
from workers.simulate.worker import SimWorker
from workers.traces.catalogue import generate

if TYPE_CHECKING:
    from workers.engine.events import Batch, Event

PROFILE = Profile(0.013, 0.00007, 0.0101, 0.00003)


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[float, list[int], int]]:
    """Return times, prompts that partly begin alike, and lengths of answers."""
    found: list[tuple[float, list[int], int]] = []
    now = 0.0
    for _ in range(draw(st.integers(1, 25))):
        now += draw(st.sampled_from([0.0, 0.004, 0.0303, 0.5, 3.0]))
        prefix = [draw(st.integers(0, 2))] * draw(st.sampled_from([0, 30, 64, 200]))
        own = [100 + len(found)] * draw(st.integers(1, 90))
        found.append((now, prefix + own, draw(st.integers(1, 150))))
    return found


def history(config: EngineConfig, asked: list[tuple[float, list[int], int]], *, leaps: bool) -> list[Any]:
    """Return all that a worker tells, its counters, and what it holds in the end; looked at now and then."""
    told: list[Any] = []

    def publishes(batch: Batch) -> None:
        told.append((batch.ts, [event_of(event) for event in batch.events]))

    def tells(request: Request, now: float) -> None:
        request.eager = False
        told.append((now, request.rid, len(request.output), request.finish, request.cached_tokens))

    worker = SimWorker(config, publishes=publishes, tells=tells, leaps=leaps)
    made = []
    for number, (at, tokens, output) in enumerate(asked):
        request = Request(str(number), sequence_of(tokens, config.page_size), output, eager=True)
        made.append(request)
        worker.submit(request, at)
        worker.catch_up(at + 0.017)
        told.append(vars_of(worker.at(at + 0.02)))
    worker.run(1e6)
    return [*told, vars_of(worker.at(1e6)), *(bytes(request.sequence.data) for request in made)]


def event_of(event: Event) -> tuple[Any, ...]:
    return (type(event).__name__, getattr(event, "hashes", None), getattr(event, "medium", None))


def vars_of(rank: Any) -> tuple[Any, ...]:
    held = rank.memory.held, rank.memory.room, rank.memory.hoped, rank.new_token_ratio, rank.memory.tiers()
    tokens = [(request.rid, request.computed, len(request.output)) for request in rank.requests()]
    return (*held, tokens, msgspec.to_builtins(rank.counters))


@settings(max_examples=60)
@given(
    asked=requests(),
    page_size=st.sampled_from([1, 16, 64]),
    capacity=st.sampled_from([600, 1500, 20_000]),
    max_running=st.sampled_from([3, 256]),
    tiers=st.sampled_from(
        [None, TierConfig(host=2.0, host_bandwidth=1e9), TierConfig(host=1.0, storage=4.0)]
    ),
)
def test_a_leap_is_exactly_what_the_steps_would_have_been(
    asked: list[tuple[float, list[int], int]],
    page_size: int,
    capacity: int,
    max_running: int,
    tiers: TierConfig | None,
) -> None:
    config = EngineConfig(
        page_size=page_size,
        capacity_tokens=capacity,
        chunk_tokens=128,
        max_running=max_running,
        tiers=tiers,
        profile=PROFILE,
    )
    assert history(config, asked, leaps=True) == history(config, asked, leaps=False)


def test_what_only_the_room_keeps_waiting_is_admitted_at_the_same_step() -> None:
    config = EngineConfig(page_size=16, capacity_tokens=1600, max_running=256, profile=PROFILE)
    asked = [(0.0, [number] * 300, 400) for number in range(1, 9)]
    assert history(config, asked, leaps=True) == history(config, asked, leaps=False)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("groups,qps=8,seconds=15,groups=12,output=200", {"kv_tokens": 40_000}),
        ("rollouts,qps=4,seconds=30,every=10,output=150,sync=1", {"losses": 3, "replicas": 2, "share": 0.02}),
        ("chat,qps=8,seconds=15,turns=3", {"tiers": TierConfig(host=4.0), "lag": 0.3, "restarts": 2}),
    ],
)
def test_a_whole_fleet_is_the_same_with_leaps_and_without(text: str, changes: dict[str, Any]) -> None:
    asked = generate(text, seed=3)
    assert run(asked, leaps=True, **changes) == run(asked, leaps=False, **changes)


def test_a_loop_that_runs_ahead_is_simulated_step_by_step() -> None:
    asked = generate("groups,qps=4,seconds=5,output=20", seed=3)
    assert run(asked, loop="overlap").unended == 0


def test_nothing_is_told_before_it_was_said_to_be_quiet_until() -> None:
    early: list[float] = []
    worker: SimWorker

    def tells(request: Request, now: float) -> None:
        request.eager = False
        if now < promised:
            early.append(now)

    promised = 0.0
    config = EngineConfig(page_size=16, capacity_tokens=20_000, profile=PROFILE)
    worker = SimWorker(config, publishes=lambda _batch: None, tells=tells)
    for number in range(40):
        at = number * 0.31
        promised = 0.0
        request = Request(str(number), sequence_of([number] * 100, 16), 1 + number * 7 % 90, eager=True)
        worker.post(lambda _now, request=request: submit(worker.rank, request), at)  # type: ignore[misc] # bound now
        promised = worker.quiet
        worker.run(at + 0.3)
    assert not early
