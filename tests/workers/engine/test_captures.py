from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.workers.engine.playbook import Playbook
from workers.engine.wire import sglang_map

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
SGLANG_CAPTURES = ["sglang_0.5.23_page16.json", "sglang_0.5.23_page1.json"]


def _capture(name: str) -> dict[str, Any]:
    capture: dict[str, Any] = json.loads((CAPTURES / name).read_text())
    return capture


def _events(payload: str) -> list[dict[str, Any]]:
    _ts, events, _rank = msgspec.msgpack.decode(bytes.fromhex(payload))
    return list(events)


def _play(play: Playbook, step: dict[str, Any]) -> int | None:
    match step["path"]:
        case "/v1/completions":
            return play.run(step["body"]["prompt"], step["body"]["max_tokens"]).cached_tokens
        case "/pause_generation":
            play.pause(step["body"]["mode"])
        case "/flush_cache":
            assert play.flush()
        case "/continue_generation":
            play.resume()
        case path:
            raise AssertionError(path)
    play.settle()
    return None


@pytest.mark.parametrize("name", SGLANG_CAPTURES)
def test_every_step_of_a_real_engine_gives_the_same_events_and_the_same_hit(name: str) -> None:
    capture = _capture(name)
    play = Playbook(
        page_size=capture["page_size"], capacity_tokens=capture["capacity_tokens"], paused_loop="publishing"
    )
    play.settle()
    play.published.clear()
    for step in capture["steps"]:
        cached = _play(play, step)
        ours = [[sglang_map(event) for event in batch.events] for batch in play.published]
        assert ours == [_events(frame[2]) for frame in step["frames"]]
        assert cached == (step["usage"] and step["usage"]["prompt_tokens_details"]["cached_tokens"])
        play.published.clear()


@pytest.mark.parametrize("name", SGLANG_CAPTURES)
def test_the_batches_of_a_process_are_those_that_a_real_engine_replays(name: str) -> None:
    capture = _capture(name)
    play = Playbook(
        page_size=capture["page_size"], capacity_tokens=capture["capacity_tokens"], paused_loop="publishing"
    )
    play.settle()
    for step in capture["steps"]:
        _play(play, step)
    theirs = [_events(message[3]) for message in capture["replay_from_0"][:-1]]
    assert [[sglang_map(event) for event in batch.events] for batch in play.published] == theirs
