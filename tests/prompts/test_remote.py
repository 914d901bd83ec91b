"""A worker's own /tokenize, where the router has no tokenizer."""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any

import pytest

from router.prompts.inexact import Inexact
from router.prompts.remote import REST_SECONDS, RemoteTokenizer
from router.prompts.request import Kind, Request, parse
from router.proxy.upstream import Upstream
from tests.prompts.tokenising import worker

if TYPE_CHECKING:
    from router.prompts.prompt import Prompt

USER = {"role": "user", "content": "hi"}
IDS = {"count": 2, "tokens": [5, 6], "max_model_len": 100}
VLLM, SGLANG = ("m", "vllm"), ("m", "sglang")


def request(kind: Kind, **body: Any) -> Request:
    return parse(kind, json.dumps(body).encode())


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def ask(
    remote: RemoteTokenizer, upstream: Upstream, asked: Request, key: tuple[str, str] = VLLM
) -> Prompt:
    return await remote.prompt(key, upstream.url, upstream, asked)


async def test_prompts_and_chats_are_tokenised_by_the_worker() -> None:
    questions: list[dict[str, Any]] = []

    def answer(question: dict[str, Any]) -> tuple[int, Any]:
        questions.append(question)
        return 200, IDS

    async with worker(answer) as upstream:
        remote = RemoteTokenizer(Clock(), deadline=5)
        prompt = await ask(remote, upstream, request(Kind.COMPLETIONS, model="m", prompt="hi"))
        await ask(remote, upstream, request(Kind.CHAT, messages=[USER], chat_template_kwargs={"a": 1}))
        await ask(remote, upstream, request(Kind.GENERATE, text="hi"), SGLANG)
    assert (prompt.tokens, prompt.count, prompt.exact) == (array("I", [5, 6]).tobytes(), 2, True)
    assert (prompt.source, prompt.why) == ("worker", "tokenised by the worker")
    assert questions[0] == {"model": "m", "prompt": "hi", "add_special_tokens": True}
    assert questions[1] == {
        "messages": [USER],
        "chat_template_kwargs": {"a": 1},
        "add_generation_prompt": True,
        "continue_final_message": False,
        "add_special_tokens": False,
    }
    assert questions[2]["prompt"] == "hi"
    assert remote.outcomes == {VLLM: "", SGLANG: ""}


@pytest.mark.parametrize(
    ("answered", "reason"),
    [
        ((404, {"detail": "Not Found"}), "answers POST /tokenize with 404"),
        ((200, {"tokens": "x"}), "holds no token ids"),
        ((200, {"tokens": [-1]}), "holds no token ids"),
        ((200, []), "holds no token ids"),
        (None, "did not answer /tokenize within 0.05 s"),
    ],
)
async def test_a_worker_that_does_not_answer_well_is_left_alone_for_a_while(
    answered: Any, reason: str
) -> None:
    asked = 0

    def answer(_: dict[str, Any]) -> tuple[int, Any] | None:
        nonlocal asked
        asked += 1
        return answered  # type: ignore[no-any-return] # as the table above says

    clock = Clock()
    remote = RemoteTokenizer(clock, deadline=0.05)
    async with worker(answer) as upstream:
        for _ in range(3):
            with pytest.raises(Inexact, match=reason):
                await ask(remote, upstream, request(Kind.COMPLETIONS, prompt="hi"))
        assert asked == 1
        assert reason in remote.outcomes[VLLM]
        clock.now += REST_SECONDS
        with pytest.raises(Inexact, match=reason):
            await ask(remote, upstream, request(Kind.COMPLETIONS, prompt="hi"))
    assert asked == 2


@pytest.mark.parametrize(
    ("kind", "key", "body"),
    [
        (Kind.CHAT, SGLANG, {"messages": [USER]}),
        (Kind.CHAT, VLLM, {"messages": [USER], "reasoning_effort": "low"}),
        (Kind.COMPLETIONS, VLLM, {"prompt": ["a", "b"]}),
        (Kind.COMPLETIONS, VLLM, {"prompt": "x" * 300_000}),
        (Kind.OTHER, VLLM, {"input": "x"}),
    ],
)
async def test_what_a_worker_cannot_be_asked_it_is_not_asked(
    kind: Kind, key: tuple[str, str], body: dict[str, Any]
) -> None:
    remote = RemoteTokenizer(Clock())
    with pytest.raises(Inexact):
        await ask(remote, Upstream("http://127.0.0.1:1"), request(kind, **body), key)
    assert remote.outcomes == {}
