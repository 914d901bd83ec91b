"""Our vLLM gives the events of a real one, in the same order, for the same requests.

Block hashes have a seed of their own in every process, so each is told by when it was first named; output
tokens are another model's, so of blocks that hold any only their number is compared.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from router.prompts.tokenizer import ChatTokenizer, load_tokenizer
from tests.prompts.models import CAPTURED_TEMPLATE, deepseek
from tests.test_captures import prompts_of, timeline
from tests.workers.engine.playbook import Playbook
from workers.engine.dialect import VLLM
from workers.engine.hashes import unpack
from workers.engine.namespace import Namespace
from workers.engine.wire import vllm_map

if TYPE_CHECKING:
    from workers.engine.request import Request

_STEPS = {"/v1/completions", "/v1/chat/completions", "/reset_prefix_cache"}
_HEADER_SESSION = "hdr-sess"  # named in a header, which the capture does not have
_UNUSED_BLOCK = 1  # the real pool keeps one block that nobody gets


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return load_tokenizer(deepseek(tmp_path_factory.mktemp("model"), CAPTURED_TEMPLATE), engine="vllm")


class Names:
    """Events with every hash replaced by a number, in the order of first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def _number(self, block: Any) -> int | None:
        key = json.dumps(block) if isinstance(block, dict) else block
        return None if block is None else self._numbers.setdefault(key, len(self._numbers))

    def plain(self, event: dict[str, Any], *, prompt_only: bool) -> dict[str, Any]:
        named = {key: value for key, value in event.items() if value != _HEADER_SESSION}
        if "block_hashes" in named:
            named["block_hashes"] = [self._number(block) for block in named["block_hashes"]]
        if "parent_block_hash" in named:
            named["parent_block_hash"] = self._number(named["parent_block_hash"])
            named["token_ids"] = named["token_ids"] if prompt_only else len(named["token_ids"])
        return named


def _groups(worker: str, begin: str, end: str) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Return the calls between two paths, those that came together in one group, each with its events."""
    groups: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = []
    started, last = False, 0.0
    for now, moment in timeline(worker):
        if "payload_hex" in moment:
            if groups:
                groups[-1][1].extend(moment["decoded"][1])
            continue
        started = started or moment["path"] == begin
        if started and moment["path"] == end:
            break
        if started and moment["status"] == 200 and moment["path"] in _STEPS:
            if groups and now - last < 0.01 and not groups[-1][1]:
                groups[-1][0].append(moment)
            else:
                groups.append(([moment], []))
            last = now
    return groups


def _submit(play: Playbook, call: dict[str, Any], tokenizer: ChatTokenizer) -> Request | None:
    if call["path"].startswith("/reset"):
        assert play.flush()
        return None
    body = call["body"]
    [prompt] = prompts_of(body, tokenizer)
    return play.request(
        unpack(prompt.tokens),
        body.get("max_tokens", 16),
        Namespace(cache_salt=body.get("cache_salt")),
        session_id=body.get("session_id"),
        ignores_cache=body.get("prompt_logprobs") is not None,
        reports_hits=(body.get("vllm_xargs") or {}).get("kv_cache_report_mode") == "full",
    )


@pytest.mark.parametrize(
    ("worker", "begin", "end", "blocks"),
    [
        ("vllm0", "/v1/completions", "/pause", 32_768),
        ("vllm1", "/v1/completions", "/v1/chat/completions/render", 40),
    ],
)
def test_plain_steps(worker: str, begin: str, end: str, blocks: int, tokenizer: ChatTokenizer) -> None:
    play = Playbook(dialect=VLLM, page_size=32, capacity_tokens=32 * (blocks - _UNUSED_BLOCK))
    ours, theirs, steps = Names(), Names(), 0
    for calls, events in _groups(worker, begin, end):
        requests = [_submit(play, call, tokenizer) for call in calls]
        play.settle()
        prompt_only = all(request is None or len(request.output) < 32 for request in requests)
        expected = [theirs.plain(event, prompt_only=prompt_only) for event in events]
        got = [ours.plain(vllm_map(event), prompt_only=prompt_only) for event in play.events()]
        assert got == expected
        for request, call in zip(requests, calls, strict=True):
            if request is not None:
                details = call["response"]["usage"]["prompt_tokens_details"]
                assert request.cached_tokens == details["cached_tokens"]
        play.published.clear()
        steps += len(calls)
    assert steps >= 14
