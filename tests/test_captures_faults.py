"""Real engines' frames with faults injected: no crash, honest counters, right again after replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.cursor import Cursor
from router.core.decide import gather
from router.core.index import Index
from router.core.rank import Rank
from router.core.steps import Apply, AskReplay, State, Step
from router.core.view import View
from router.core.wire import WireError, decode_batch

if TYPE_CHECKING:
    from router.core.events import Batch

CAPTURE = Path(__file__).parent / "fixtures" / "captures" / "sglang_0.5.23_page16.json"
RECORD: dict[str, Any] = json.loads(CAPTURE.read_text())
HISTORY: list[bytes] = [bytes.fromhex(frame[3]) for frame in RECORD["replay_from_0"] if frame[2] != "ff" * 8]
PROMPTS: list[list[int]] = [step["body"]["prompt"] for step in RECORD["steps"] if step["usage"]]


class Receiver:
    """A cursor and a view that get frames as a stream hands them on; replay answers from the record."""

    def __init__(self, *, can_replay: bool) -> None:
        self.index = Index()
        self.view = View(self.index, "m", block_size=16)
        self.rank = Rank("w", 0, self.view)
        self.cursor = Cursor(can_replay=can_replay)
        self.undecodable = 0
        self.published: list[bytes] = []
        self.carry_out(self.cursor.connect(0.0))

    def publish(self, payload: bytes, arrives: bytes | None) -> None:
        """The engine publishes `payload`; what arrives of it may be something else, or nothing."""
        self.published.append(payload)
        if arrives is None:
            return
        seq = len(self.published) - 1
        batch = self.decode(arrives)
        if batch is not None:
            self.carry_out(self.cursor.live(seq, batch, 0.0, len(arrives)))

    def decode(self, payload: bytes) -> Batch | None:
        try:
            return decode_batch(payload)
        except WireError:
            self.undecodable += 1
            return None

    def carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Apply):
                self.view.apply(step.batch)
            elif isinstance(step, AskReplay):
                self.replay(step.start)
            else:
                self.view.reset(step.cause)

    def replay(self, start: int) -> None:
        for seq, payload in enumerate(self.published):
            if seq >= start:
                self.carry_out(self.cursor.replayed(seq, decode_batch(payload), 0.0))
        self.carry_out(self.cursor.replay_ended(0.0))

    def holds(self) -> tuple[dict[str, int], list[int]]:
        """Return blocks by tier, and the overlap of every captured prompt."""
        prompts = [PromptBlocks(pack_tokens(ids), len(ids), Namespace("m")) for ids in PROMPTS]
        found = [gather(self.index, [self.rank], prompt).candidates()[0].overlap_tokens for prompt in prompts]
        return self.view.blocks(), found


def undisturbed() -> Receiver:
    receiver = Receiver(can_replay=False)
    for payload in HISTORY:
        receiver.publish(payload, payload)
    return receiver


RIGHT = undisturbed().holds()
LAST = len(HISTORY) - 1


@pytest.mark.parametrize("dropped", range(LAST))
def test_any_one_lost_batch_is_fetched_and_nothing_is_missing_at_the_end(dropped: int) -> None:
    receiver = Receiver(can_replay=True)
    for seq, payload in enumerate(HISTORY):
        receiver.publish(payload, None if seq == dropped else payload)
    assert receiver.holds() == RIGHT
    assert receiver.cursor.state is State.LIVE


@pytest.mark.parametrize("dropped", range(1, LAST))
def test_any_one_lost_batch_without_replay_degrades_the_view_until_a_clear(dropped: int) -> None:
    receiver = Receiver(can_replay=False)
    for seq, payload in enumerate(HISTORY):
        receiver.publish(payload, None if seq == dropped else payload)
    cleared = any(decode_batch(payload).clears for payload in HISTORY[dropped + 1 :])
    assert receiver.cursor.counts.gaps == 1
    assert receiver.cursor.state is (State.LIVE if cleared else State.DEGRADED)
    if cleared:
        assert receiver.holds() == RIGHT


@settings(max_examples=300)
@given(st.data())
def test_a_batch_cut_at_any_byte_is_counted_and_fetched_again(data: st.DataObject) -> None:
    victim = data.draw(st.integers(0, LAST - 1))
    cut = data.draw(st.integers(0, len(HISTORY[victim]) - 1))
    receiver = Receiver(can_replay=True)
    for seq, payload in enumerate(HISTORY):
        receiver.publish(payload, payload[:cut] if seq == victim else payload)
    assert receiver.undecodable == 1
    assert receiver.holds() == RIGHT


@settings(max_examples=500)
@given(st.data())
def test_a_flipped_byte_crashes_nothing_and_a_full_replay_puts_everything_right(data: st.DataObject) -> None:
    victim = data.draw(st.integers(0, LAST - 1))
    at = data.draw(st.integers(0, len(HISTORY[victim]) - 1))
    flipped = bytearray(HISTORY[victim])
    flipped[at] ^= data.draw(st.integers(1, 255))
    receiver = Receiver(can_replay=True)
    for seq, payload in enumerate(HISTORY):
        receiver.publish(payload, bytes(flipped) if seq == victim else payload)
    if receiver.undecodable:
        assert receiver.holds() == RIGHT
    receiver.view.reset("test")
    receiver.cursor = Cursor(can_replay=True)
    receiver.carry_out(receiver.cursor.connect(0.0))
    assert receiver.holds() == RIGHT
