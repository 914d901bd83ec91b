"""From a request to its prompt, on the event loop when that is short, in a thread when it is not.

`read_now` is a plain function for the hot path: no coroutine, no hop. It answers None when tokenising would
take longer than about 1 ms (a body over `Encoder.inline_bytes`); then `read` does it in a thread. Both
backends release the GIL while they tokenise; rendering a template holds it. Token ids need no tokenizer and
never wait.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from router.prompts.fields import Chat, Completions, Generate
from router.prompts.inexact import Inexact
from router.prompts.prompt import Prompt, estimated

if TYPE_CHECKING:
    from router.prompts.request import Request
    from router.prompts.tokenizer import ChatTokenizer

BYTES_PER_ID = 4


class PromptReader:
    """Reads prompts; owns the threads for long ones. `threads` is how many are tokenised at once."""

    def __init__(self, *, threads: int = 2) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tokenise")

    def read_now(self, request: Request, tokenizer: ChatTokenizer | None) -> Prompt | None:
        """Return the prompt, or None when reading it would hold up the event loop."""
        if tokenizer is None or isinstance(request.prompt, bytes):
            return read_prompt(request, tokenizer)
        if request.size <= tokenizer.encoder.inline_bytes:
            return read_prompt(request, tokenizer)
        return None

    async def read(self, request: Request, tokenizer: ChatTokenizer | None) -> Prompt:
        """Return the prompt, from a thread when it is long."""
        prompt = self.read_now(request, tokenizer)
        if prompt is not None:
            return prompt
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, read_prompt, request, tokenizer)

    def close(self) -> None:
        """Let go of the threads; what waits for one is cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def read_prompt(request: Request, tokenizer: ChatTokenizer | None) -> Prompt:
    """Return the first prompt of the request, exactly or with the reason why not. Never raises; blocks."""
    try:
        tokens = _cut(_tokens(request, tokenizer), request)
    except Inexact as reason:
        return estimated(request, str(reason))
    why = f"the first of {request.prompts} prompts" if request.prompts > 1 else ""
    return Prompt(tokens, len(tokens) // BYTES_PER_ID, exact=True, why=why)


def _tokens(request: Request, tokenizer: ChatTokenizer | None) -> bytes:
    fields = request.fields
    if isinstance(fields, Generate):
        _refuse_media(fields)
    if isinstance(request.prompt, bytes):
        return request.prompt
    if tokenizer is None:
        raise Inexact("there is no tokenizer for this model")
    if isinstance(fields, Chat):
        return _encode(tokenizer, tokenizer.render(fields), special=bool(fields.add_special_tokens))
    special = fields.add_special_tokens is not False if isinstance(fields, Completions) else True
    return _encode(tokenizer, request.prompt or "", special=special)


def _encode(tokenizer: ChatTokenizer, text: str, *, special: bool) -> bytes:
    try:
        return tokenizer.encoder.encode(text, special=special)
    except Exception as error:  # noqa: BLE001 (whatever a native tokenizer raises, the request can still be routed)
        raise Inexact(f"{tokenizer.encoder.name} failed: {error}") from None


def _refuse_media(fields: Generate) -> None:
    if any(bytes(data) != b"null" for data in (fields.image_data, fields.video_data, fields.audio_data)):
        raise Inexact("the prompt holds images, video or audio")


def _cut(tokens: bytes, request: Request) -> bytes:
    """Keep the last `truncate_prompt_tokens` tokens (vLLM 0.32); -1 means the model's limit, unknown here."""
    keep = None if isinstance(request.fields, Generate) else request.fields.truncate_prompt_tokens
    return tokens[-BYTES_PER_ID * keep :] if keep is not None and keep > 0 else tokens
