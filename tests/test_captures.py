"""Views fed with what real engines published predict the cached_tokens that those engines then answered.

The captures are raw frames and answers of SGLang 0.5.23 (its own radix cache and publisher) and of vLLM 0.32
(real servers); engine and router clocks are one. Requests that arrive together see each other as predictions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.cursor import Cursor
from router.core.decide import gather, predict
from router.core.index import Index
from router.core.rank import Rank
from router.core.steps import Apply, Reset
from router.core.view import View
from router.core.wire import decode_batch
from router.prompts.namespace import namespace
from router.prompts.reader import read_prompt
from router.prompts.request import kind_of, parse
from router.prompts.tokenizer import ChatTokenizer, load_tokenizer
from tests.prompts.models import CAPTURED_TEMPLATE, deepseek

CAPTURES = Path(__file__).parent / "fixtures" / "captures"
ADAPTERS = {"tinylora", "dyn"}
# What empties a cache without an event: the router learns of it from /is_paused and /is_sleeping.
PAUSES = {"/pause", "/pause?mode=keep", "/sleep?level=1"}


class Replayed:
    """One worker's capture, replayed through cursor, view and decision in the order of time."""

    def __init__(self, engine: str) -> None:
        self.index = Index()
        self.view = View(self.index, "tiny", block_size=None, counts_copies=engine == "vllm")
        self.rank = Rank("worker", 0, self.view)
        self.cursor = Cursor(can_replay=False)

    def frame(self, seq: str, payload: str, now: float = 0.0) -> None:
        for step in self.cursor.live(int(seq, 16), decode_batch(bytes.fromhex(payload)), now):
            if isinstance(step, Apply):
                self.view.apply(step.batch)
            elif isinstance(step, Reset):
                self.view.reset(step.cause)

    def expected(self, prompt: PromptBlocks, now: float = 0.0) -> int:
        self.view.predicted.expire(now)
        candidate = gather(self.index, [self.rank], prompt).candidates()[0]
        predict(candidate, prompt, now)
        return candidate.overlap_tokens


@pytest.mark.parametrize("page", [1, 16])
def test_every_answer_of_sglang_is_predicted(page: int) -> None:
    capture = json.loads((CAPTURES / f"sglang_0.5.23_page{page}.json").read_text())
    replayed = Replayed("sglang")
    replayed.frame(*capture["replay_from_0"][0][2:4])
    predicted, reported = [], []
    for step in capture["steps"]:
        if step["usage"] is not None:
            prompt = step["body"]["prompt"]
            blocks = PromptBlocks(pack_tokens(prompt), len(prompt), Namespace("tiny"))
            predicted.append(replayed.expected(blocks))
            reported.append(step["usage"]["prompt_tokens_details"]["cached_tokens"])
        for _, seq, payload in step["frames"]:
            replayed.frame(seq, payload)
    assert len(reported) == 11
    assert predicted == reported
    assert replayed.view.resets == {"all_blocks_cleared": 2}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return load_tokenizer(deepseek(tmp_path_factory.mktemp("model"), CAPTURED_TEMPLATE), engine="vllm")


def prompts_of(body: dict[str, Any], tokenizer: ChatTokenizer) -> list[PromptBlocks]:
    """Return each prompt of a body as the router reads it."""
    batch = body.get("prompt")
    several = isinstance(batch, list) and isinstance(batch[0], list)
    bodies = [body | {"prompt": one} for one in batch] if several and batch else [body]
    found = []
    for one in bodies:
        raw = json.dumps(one).encode()
        request = parse(kind_of(raw), raw)
        prompt = read_prompt(request, tokenizer)
        assert prompt.exact
        model = one["model"]
        space = namespace(request, "vllm", model="tiny", adapter=model if model in ADAPTERS else None)
        found.append(
            PromptBlocks(prompt.tokens, prompt.count, space, reads_cache=request.reads_cache("vllm"))
        )
    return found


def timeline(worker: str) -> list[tuple[float, dict[str, Any]]]:
    events = map(json.loads, (CAPTURES / "vllm_0.32.0.jsonl").read_text().splitlines())
    requests = map(json.loads, (CAPTURES / "vllm_0.32.0_http.jsonl").read_text().splitlines())
    moments = [(event["recv_ts"], event) for event in events if event.get("worker") == worker]
    moments += [(request["ts"], request) for request in requests if request["worker"] == worker]
    return sorted(moments, key=lambda moment: moment[0])


@pytest.mark.parametrize(("worker", "answers"), [("vllm0", 22), ("vllm1", 17)])
def test_every_answer_of_vllm_is_predicted(worker: str, answers: int, tokenizer: ChatTokenizer) -> None:
    replayed = Replayed("vllm")
    # The block size is asked from the worker before its first event (vllm:cache_config_info).
    replayed.view.block_size = 32
    predicted, reported = [], []
    for now, moment in timeline(worker):
        if "payload_hex" in moment:
            replayed.frame(moment["seq_hex"], moment["payload_hex"], now)
        elif moment["path"] in PAUSES and moment["status"] == 200:
            replayed.view.reset("paused")
        elif isinstance(moment["response"], dict) and "usage" in moment["response"]:
            prompts = prompts_of(moment["body"], tokenizer)
            predicted.append(sum(replayed.expected(prompt, now) for prompt in prompts))
            reported.append(moment["response"]["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert len(reported) == answers
    assert predicted == reported
