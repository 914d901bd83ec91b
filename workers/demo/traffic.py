"""Multi-turn chats: several users share each system prompt, and every turn repeats what came before."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.proxy.upstream import Upstream

_CACHED = re.compile(rb'"cached_tokens"\s*:\s*(\d+)')
_PROMPT = re.compile(rb'"prompt_tokens"\s*:\s*(\d+)')
_TEXT = re.compile(rb'"content":"((?:[^"\\]|\\.)*)"')
_JSON = ((b"content-type", b"application/json"),)
_OK = 200
_WORDS = ("cache", "block", "prefix", "worker", "router", "token", "event", "batch", "queue", "tree", "page")


@dataclass(frozen=True, slots=True)
class Workload:
    """Sizes in words (about six tokens each, one token a byte); `think_seconds` between a user's turns."""

    groups: int = 10
    users_per_group: int = 3
    turns: int = 4
    system_words: int = 300
    question_words: int = 25
    answer_tokens: int = 24
    think_seconds: float = 0.3

    @property
    def requests(self) -> int:
        """How many requests it makes."""
        return self.groups * self.users_per_group * self.turns


@dataclass(frozen=True, slots=True)
class Sample:
    """What one request showed. Times in seconds, `began` on the monotonic clock; the rest in tokens.

    `expected` is the overlap the router scored the request with, `cached` what the engine then reported.
    """

    worker: str
    began: float
    ttft: float
    prompt: int
    cached: int
    expected: int


@dataclass(slots=True)
class Chat:
    """One user's conversation."""

    messages: list[dict[str, str]] = field(default_factory=list)


async def ask(client: Upstream, chat: Chat, question: str, answer_tokens: int) -> Sample:
    """Put a question, read the streamed answer, and add both to the chat.

    Raises UpstreamFailed, or RuntimeError when the answer is not a complete success.
    """
    chat.messages.append({"role": "user", "content": question})
    body = msgspec.json.encode(
        {
            "model": "stand-in",
            "messages": chat.messages,
            "max_tokens": answer_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    began = time.monotonic()
    response = await client.request(b"POST", b"/v1/chat/completions", _JSON, body)
    try:
        answer = first = await response.read()
        ttft = time.monotonic() - began
        while first and (piece := await response.read()):
            answer += piece
    finally:
        response.close()
    headers = dict(response.headers)
    if response.status != _OK or b"[DONE]" not in answer:
        raise RuntimeError(f"a request failed: {response.status} {answer[:200]!r}")
    text = b"".join(_TEXT.findall(answer))
    chat.messages.append({"role": "assistant", "content": msgspec.json.decode(b'"' + text + b'"', type=str)})
    return Sample(
        worker=headers[b"x-kv-router-worker"].decode(),
        began=began,
        ttft=ttft,
        prompt=int(_PROMPT.findall(answer)[-1]),
        cached=int(_CACHED.findall(answer)[-1]),
        expected=int(headers[b"x-kv-router-overlap-tokens"]),
    )


async def run(client: Upstream, workload: Workload, on_answer: Callable[[], None]) -> list[Sample]:
    """Run every user of a workload at once, each turn after the one before; the same each time."""
    users = [
        _user(client, workload, group, user, on_answer)
        for user in range(workload.users_per_group)
        for group in range(workload.groups)
    ]
    return [sample for samples in await asyncio.gather(*users) for sample in samples]


async def _user(
    client: Upstream, workload: Workload, group: int, user: int, on_answer: Callable[[], None]
) -> list[Sample]:
    own = Random(group * 1000 + user)
    chat = new_chat(workload, group)
    samples = []
    await asyncio.sleep(own.random() * workload.think_seconds + user * workload.think_seconds)
    for _ in range(workload.turns):
        question = words(own, workload.question_words)
        samples.append(await ask(client, chat, question, workload.answer_tokens))
        on_answer()
        await asyncio.sleep(own.random() * 2 * workload.think_seconds)
    return samples


def new_chat(workload: Workload, group: int) -> Chat:
    """Return a chat that has a group's system prompt."""
    return Chat([{"role": "system", "content": words(Random(group), workload.system_words)}])


def words(rng: Random, count: int) -> str:
    """Return some text."""
    return " ".join(rng.choice(_WORDS) for _ in range(count))
