"""Token ids from a worker, for a model whose tokenizer is not here: one POST /tokenize within a deadline.

vLLM 0.32 tokenises prompts and chats, SGLang 0.5.23 prompts only. A worker that fails is left alone for a
while, so that requests do not wait for an answer that will not come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from router.errors import UpstreamFailed
from router.prompts import conversation
from router.prompts.decoding import pack
from router.prompts.fields import Completions, Generate, Other, TokenId
from router.prompts.inexact import Inexact
from router.prompts.prompt import Prompt, known
from router.proxy.fetch import fetch

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.prompts.request import Request
    from router.proxy.upstream import Upstream

DEADLINE_SECONDS = 0.05
"""How long a request waits for the worker's /tokenize."""

REST_SECONDS = 15.0
"""How long a worker is not asked again after it failed."""

MAX_BYTES = 262_144
"""The longest body whose tokens are asked for; a longer one would not be answered in time."""

_OK = 200


class Tokens(msgspec.Struct, gc=False):
    """An answer to POST /tokenize."""

    tokens: list[TokenId]


class RemoteTokenizer:
    """Asks workers. `deadline` in seconds; `clock` is monotonic.

    `outcomes` tells for each (model, engine) what came of the last question: "" for an answer, or the reason.
    """

    def __init__(self, clock: Callable[[], float], *, deadline: float = DEADLINE_SECONDS) -> None:
        self._clock = clock
        self._deadline = deadline
        self._resting: dict[str, tuple[float, str]] = {}
        self.outcomes: dict[tuple[str, str], str] = {}

    def why_not(self, url: str) -> str:
        """Say why this worker is not asked now; "" when it is."""
        until, why = self._resting.get(url, (0.0, ""))
        return why if self._clock() < until else ""

    async def prompt(self, key: tuple[str, str], url: str, upstream: Upstream, request: Request) -> Prompt:
        """Return the prompt as the worker at `url` tokenises it; raises Inexact: it does not, or not in time.

        `key` is the request's base model and the worker's engine.
        """
        question = question_of(request, key[1])
        resting = self.why_not(url)
        if resting:
            raise Inexact(resting)
        try:
            tokens = await ask(upstream, question, self._deadline)
        except Inexact as reason:
            self.outcomes[key] = str(reason)
            self._resting[url] = (self._clock() + REST_SECONDS, str(reason))
            raise
        self.outcomes[key] = ""
        return known(tokens, 0, why="tokenised by the worker", source="worker")


async def ask(upstream: Upstream, question: dict[str, Any], seconds: float) -> bytes:
    """Return the worker's token ids as u32 little-endian bytes; raises Inexact."""
    try:
        reply = await fetch(upstream, "POST", "/tokenize", json=question, timeout=seconds)
    except UpstreamFailed as error:
        raise Inexact(error.message) from None
    if reply.status != _OK:
        raise Inexact(f"the worker answers POST /tokenize with {reply.status}")
    try:
        return pack(msgspec.json.decode(reply.body, type=Tokens).tokens, "tokens")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Inexact("the worker's answer to POST /tokenize holds no token ids") from None


def question_of(request: Request, engine: str) -> dict[str, Any]:
    """Return the body for POST /tokenize; raises Inexact for what it cannot be asked."""
    fields = request.fields
    if isinstance(fields, Other) or request.size > MAX_BYTES or request.rest:
        raise Inexact("the worker is not asked for the tokens of such a body")
    if isinstance(fields, Completions | Generate):
        special = fields.add_special_tokens is not False if isinstance(fields, Completions) else True
        return {"model": fields.model, "prompt": request.prompt, "add_special_tokens": special}
    if engine != "vllm":
        raise Inexact(f"{engine} tokenises no chats")
    chat = conversation.chat_of(fields, engine)
    question = {
        "model": chat.model,
        "messages": chat.messages,
        "tools": chat.tools,
        "chat_template_kwargs": chat.chat_template_kwargs,
        "add_generation_prompt": chat.add_generation_prompt is not False,
        "continue_final_message": bool(chat.continue_final_message),
        "add_special_tokens": bool(chat.add_special_tokens),
    }
    if chat.chat_template is not None or chat.documents is not None or chat.reasoning_effort is not None:
        raise Inexact("the worker's POST /tokenize does not take all of this chat")
    return {name: value for name, value in question.items() if value is not None}
