"""From a request to its prompt, on the event loop when that is short, in a thread when it is not.

`read_now` is a plain function for the hot path: no coroutine, no hop. It answers None when tokenising would
take longer than about 1 ms (a body over `Encoder.inline_bytes`), or when the template turns out to be slow;
then `read` does it in a thread. The encoders release the GIL while they tokenise; rendering a template holds
it, within limits. Token ids need no tokenizer and never wait.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from router.prompts.fields import Completions, Generate, Other
from router.prompts.inexact import Inexact, TooSlow
from router.prompts.media import tokens_before_media
from router.prompts.prompt import BYTES_PER_ID, Prompt, estimated, known
from router.prompts.template import RENDER_SECONDS

if TYPE_CHECKING:
    from router.prompts.request import Request
    from router.prompts.tokenizer import ChatTokenizer

INLINE_SECONDS = 0.005
"""How long a template may render on the event loop; usual ones take 20 to 200 us."""


class PromptReader:
    """Reads prompts; owns the threads for long ones. `threads` is how many are tokenised at once."""

    def __init__(self, *, threads: int = 2) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tokenise")

    def read_now(
        self, request: Request, tokenizer: ChatTokenizer | None, engine: str = "vllm"
    ) -> Prompt | None:
        """Return the prompt, or None when reading it would hold up the event loop."""
        if tokenizer is None or isinstance(request.prompt, bytes):
            return read_prompt(request, tokenizer, engine)
        if request.size > tokenizer.encoder.inline_bytes:
            return None
        try:
            return _read(request, tokenizer, engine, INLINE_SECONDS)
        except TooSlow:
            return None

    async def read(self, request: Request, tokenizer: ChatTokenizer | None, engine: str = "vllm") -> Prompt:
        """Return the prompt, from a thread when it is long."""
        prompt = self.read_now(request, tokenizer, engine)
        return prompt if prompt is not None else await self.read_later(request, tokenizer, engine)

    async def read_later(self, request: Request, tokenizer: ChatTokenizer | None, engine: str) -> Prompt:
        """Return the prompt from a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, read_prompt, request, tokenizer, engine)

    def close(self) -> None:
        """Let go of the threads; what waits for one is cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def read_prompt(request: Request, tokenizer: ChatTokenizer | None, engine: str = "vllm") -> Prompt:
    """Return the request's prompt, exactly or with the reason why not. Never raises; blocks."""
    try:
        return _read(request, tokenizer, engine, RENDER_SECONDS)
    except TooSlow as reason:
        return estimated(request, str(reason))


def _read(request: Request, tokenizer: ChatTokenizer | None, engine: str, seconds: float) -> Prompt:
    """Return the prompt; raises nothing but TooSlow."""
    try:
        return _known(request, tokenizer, engine, seconds)
    except TooSlow:
        raise
    except Inexact as reason:
        return _before_media(request, tokenizer, seconds) or estimated(request, str(reason))


def _known(request: Request, tokenizer: ChatTokenizer | None, engine: str, seconds: float) -> Prompt:
    fields = request.fields
    if isinstance(fields, Other):
        raise Inexact("this route is not one whose prompt is known")
    if request.embedded:
        raise Inexact("the prompt is given as embeddings")
    if isinstance(fields, Generate):
        _refuse_media(fields)
    elif isinstance(fields, Completions) and fields.suffix and engine != "vllm":
        raise Inexact("the engine puts prompt and suffix together in its own way")
    if request.prompt is None:
        tokens = _some(tokenizer).chat_ids(fields, seconds)  # type: ignore[arg-type] # no prompt: a conversation
        return known(_cut(tokens, request, engine), 0)
    prompts = [_tokens(prompt, request, tokenizer) for prompt in (request.prompt, *request.rest)]
    cut = [_cut(tokens, request, engine) for tokens in prompts]
    others = sum(map(len, cut[1:])) // BYTES_PER_ID
    return known(cut[0], others, f"the longest of {len(cut)} prompts decides" if others else "")


def _tokens(prompt: str | bytes, request: Request, tokenizer: ChatTokenizer | None) -> bytes:
    if isinstance(prompt, bytes):
        return prompt
    fields = request.fields
    special = fields.add_special_tokens is not False if isinstance(fields, Completions) else True
    return _some(tokenizer).ids(prompt, special=special)


def _some(tokenizer: ChatTokenizer | None) -> ChatTokenizer:
    if tokenizer is None:
        raise Inexact("there is no tokenizer for this model")
    return tokenizer


def _before_media(request: Request, tokenizer: ChatTokenizer | None, seconds: float) -> Prompt | None:
    """Return what is known of a conversation with images in it, if it is one."""
    conversation = request.prompt is None and not request.embedded
    if tokenizer is None or not conversation or isinstance(request.fields, Other):
        return None
    try:
        found = tokens_before_media(tokenizer, request.fields, seconds)  # type: ignore[arg-type] # no prompt: a conversation
    except TooSlow:
        raise
    except Inexact:
        return None
    if found is None:
        return None
    tokens, place = found
    count = len(tokens) // BYTES_PER_ID
    why = f"hashed up to {place}, which is not all text; what follows is estimated, images count for nothing"
    whole = max(count + 1, estimated(request, "").count)
    return Prompt(tokens, whole, exact=False, why=why, source="tokens", reusable=count)


def _refuse_media(fields: Generate) -> None:
    if any(bytes(data) != b"null" for data in (fields.image_data, fields.video_data, fields.audio_data)):
        raise Inexact("the prompt holds images, video or audio")


def _cut(tokens: bytes, request: Request, engine: str) -> bytes:
    """Keep the last `truncate_prompt_tokens` tokens, or the first (vLLM; SGLang has no such field).

    -1 means the model's limit, which is unknown here.
    """
    fields = request.fields
    keep = getattr(fields, "truncate_prompt_tokens", None) if engine == "vllm" else None
    if keep is None or keep <= 0:
        return tokens
    if getattr(fields, "truncation_side", None) == "right":
        return tokens[: BYTES_PER_ID * keep]
    return tokens[-BYTES_PER_ID * keep :]
