"""From a request to its prompt, on the event loop when that is short, in a thread when it is not.

`read_now` is a plain function for the hot path: no coroutine, no hop. It answers None when tokenising would
take longer than about 1 ms (a body over `Encoder.inline_bytes`), or when the template turns out to be slow;
then `read` does it in a thread. The encoders release the GIL while they tokenise; rendering a template holds
it, within limits. Token ids need no tokenizer and never wait.

No request takes a thread for long: bodies over `Encoder.most_bytes` are not tokenised at all, which bounds it
to about half a second, and long ones have a thread of their own, so that they wait for each other only.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from router.prompts.fields import Chat, Completions, Generate, Other
from router.prompts.inexact import Inexact, TooSlow
from router.prompts.media import tokens_before_media
from router.prompts.prompt import BYTES_PER_ID, Prompt, estimated, known
from router.prompts.template import RENDER_SECONDS
from router.prompts.truncation import cut, to_limit

if TYPE_CHECKING:
    from router.prompts.request import Request
    from router.prompts.tokenizer import ChatTokenizer

_log = logging.getLogger(__name__)

INLINE_SECONDS = 0.005
"""How long a template may render on the event loop; usual ones take 20 to 200 us."""


NEVER_TOO_LONG = 32_768
"""The length of a body up to which it is never too long to be read, and always read whole."""

LONG_BYTES = 1024 * 1024
"""The length of a body from which on it waits for others like it: fastokens takes up to 60 ms for it."""


class PromptReader:
    """Reads prompts; owns the threads for longer ones.

    `threads` is how many are tokenised at once, beside one that is very long.
    """

    def __init__(self, *, threads: int = 2) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tokenise")
        self._long = ThreadPoolExecutor(1, thread_name_prefix="tokenise-long")

    def read_now(
        self, request: Request, tokenizer: ChatTokenizer | None, engine: str = "vllm"
    ) -> Prompt | None:
        """Return the prompt, or None when reading it would hold up the event loop."""
        if tokenizer is None or isinstance(request.prompt, bytes):
            return read_prompt(request, tokenizer, engine)
        if request.size > tokenizer.encoder.inline_bytes:
            return read_prompt(request, tokenizer, engine) if _untokenised(request, tokenizer) else None
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
        threads = self._threads if request.size < LONG_BYTES else self._long
        return await loop.run_in_executor(threads, read_prompt, request, tokenizer, engine)

    def close(self) -> None:
        """Let go of the threads; what waits for one is cancelled."""
        for threads in (self._threads, self._long):
            threads.shutdown(wait=False, cancel_futures=True)


def read_prompt(request: Request, tokenizer: ChatTokenizer | None, engine: str = "vllm") -> Prompt:
    """Return the request's prompt, exactly or with the reason why not. Never raises; blocks."""
    try:
        return _read(request, tokenizer, engine, RENDER_SECONDS)
    except TooSlow as reason:
        return estimated(request, str(reason))


def _read(request: Request, tokenizer: ChatTokenizer | None, engine: str, seconds: float) -> Prompt:
    """Return the prompt; raises nothing but TooSlow."""
    try:
        try:
            return _known(request, tokenizer, engine, seconds)
        except TooSlow:
            raise
        except Inexact as reason:
            return _before_media(request, tokenizer, seconds) or estimated(request, str(reason))
    except TooSlow:
        raise
    except Exception as error:  # noqa: BLE001 (the request can be routed whatever is wrong here)
        _log.exception("a prompt cannot be read")
        return estimated(request, f"a defect of the router's: {type(error).__name__}")


def _known(request: Request, tokenizer: ChatTokenizer | None, engine: str, seconds: float) -> Prompt:
    fields = request.fields
    if isinstance(fields, Other):
        raise Inexact("this route is not one whose prompt is known")
    if request.size > NEVER_TOO_LONG and (why := _untokenised(request, tokenizer)):
        raise Inexact(why)
    if request.prompt is None and request.embedded:
        raise Inexact("the prompt is given as embeddings")
    if isinstance(fields, Generate):
        _refuse_media(fields)
    elif isinstance(fields, Completions) and fields.suffix and engine != "vllm":
        raise Inexact("the engine puts prompt and suffix together in its own way")
    first = _tokens(request.prompt, request, tokenizer, engine, seconds)
    if not request.rest:
        prompt = known(first, 0)
    else:
        others = sum(len(_tokens(each, request, tokenizer, engine, seconds)) for each in request.rest)
        why = f"the longest of {request.prompts} prompts decides"
        prompt = known(first, others // BYTES_PER_ID, why if others else "")
    if to_limit(fields, engine):
        prompt.exact, prompt.why = False, "the prompt is cut to the model's limit, which is not known here"
    return prompt


def _tokens(
    prompt: str | bytes | None, request: Request, tokenizer: ChatTokenizer | None, engine: str, seconds: float
) -> bytes:
    """Return the token ids of one prompt, as far as the engine takes them."""
    fields = request.fields
    if prompt is None:
        tokens = _some(tokenizer).chat_ids(fields, seconds)  # type: ignore[arg-type] # no prompt: a conversation
        if not isinstance(fields, Chat) or fields.truncate_prompt_tokens is None:
            return tokens
        return cut(fields, engine, tokens, _unknown if fields.add_special_tokens else None)
    if isinstance(prompt, bytes):
        return cut(fields, engine, prompt, None)
    special = fields.add_special_tokens is not False if isinstance(fields, Completions) else True
    tokens = _some(tokenizer).ids(prompt, special=special)
    plain = partial(_some(tokenizer).ids, prompt, special=False)
    return cut(fields, engine, tokens, plain if special else None)


def _unknown() -> NoReturn:
    raise Inexact("a chat is cut within the special tokens that are put around it")


def _untokenised(request: Request, tokenizer: ChatTokenizer | None) -> str:
    """Say why the prompt is not even to be tokenised, or "" when it is."""
    if request.unread or tokenizer is None or isinstance(request.prompt, bytes):
        return request.unread
    most = tokenizer.encoder.most_bytes
    return f"the body is longer than {most:,} bytes" if request.size > most else ""


def _some(tokenizer: ChatTokenizer | None) -> ChatTokenizer:
    if tokenizer is None:
        raise Inexact("there is no tokenizer for this model")
    return tokenizer


def _before_media(request: Request, tokenizer: ChatTokenizer | None, seconds: float) -> Prompt | None:
    """Return what is known of a conversation with images in it, if it is one."""
    conversation = request.prompt is None and not request.embedded
    if not conversation or isinstance(request.fields, Other):
        return None
    if tokenizer is None or _untokenised(request, tokenizer):
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
