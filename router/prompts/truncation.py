"""What is left of a prompt with `truncate_prompt_tokens` (vLLM 0.32; SGLang has no such field).

With a `truncation_side` vLLM cuts the tokens. Without one its tokenizer cuts text on the left, and leaves
room for the special tokens that it puts around it, which stay; token ids are cut on the left as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.prompts.fields import Chat, Completions
from router.prompts.inexact import Inexact
from router.prompts.prompt import BYTES_PER_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.prompts.fields import Fields


def to_limit(fields: Fields, engine: str) -> bool:
    """Whether the prompt is cut to the model's limit, which is not known here."""
    return engine == "vllm" and isinstance(fields, Completions | Chat) and fields.truncate_prompt_tokens == -1


def cut(fields: Fields, engine: str, tokens: bytes, plain: Callable[[], bytes] | None) -> bytes:
    """Return what is left of `tokens` (u32 little-endian).

    `plain` gives a text's tokens without special ones, None when there are none around it. Raises Inexact.
    """
    if engine != "vllm" or not isinstance(fields, Completions | Chat):
        return tokens
    keep = fields.truncate_prompt_tokens
    if keep is None or keep <= 0 or keep * BYTES_PER_ID >= len(tokens):
        return tokens
    if fields.truncation_side == "right":
        return tokens[: BYTES_PER_ID * keep]
    if fields.truncation_side is None and plain is not None:
        return _within(tokens, plain(), keep)
    return tokens[-BYTES_PER_ID * keep :]


def _within(tokens: bytes, plain: bytes, keep: int) -> bytes:
    """Cut what is within the special tokens, so that `keep` are left with them."""
    special = len(tokens) - len(plain)
    before = next((at for at in range(0, special + 1, BYTES_PER_ID) if tokens.startswith(plain, at)), None)
    left = keep * BYTES_PER_ID - special
    if before is None or left <= 0:
        raise Inexact("the prompt is cut to little more than special tokens")
    return tokens[:before] + plain[-left:] + tokens[before + len(plain) :]
