"""Chats whose tokens can be counted in words, each of which is one token behind a space.

All chats of one length have the same number of tokens, so that whoever answers can report the true one; a
router that compares counts would otherwise trust its tokenizer no more, and do less than it should.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from router.prompts.reader import read_prompt
from router.prompts.request import Kind, parse
from router.prompts.tokenizer import load_tokenizer
from tests.bench.dummy import MODEL
from tests.prompts.models import deepseek

if TYPE_CHECKING:
    from router.prompts.tokenizer import ChatTokenizer

TEMPLATE = Path(__file__).parents[1] / "fixtures" / "templates" / "deepseekv3.jinja"
ENGINE = "sglang"
WORDS = 4096
SYSTEM_WORDS = 100
_WORD = re.compile(r"Ġ[a-z]{2,9}")


@dataclass(slots=True)
class Chats:
    """The bodies of one model: `overhead` is what template and fixed words add to the words, in tokens."""

    directory: str
    tokenizer: ChatTokenizer
    words: list[str]
    system: str
    overhead: int = 0

    @classmethod
    def made_in(cls, directory: Path) -> Chats:
        """Lay out a real model in `directory`. Takes about a second."""
        path = deepseek(directory, TEMPLATE.read_text(encoding="utf-8"))
        tokenizer = load_tokenizer(path, engine=ENGINE)
        words = _words(directory)
        system = "You are asked: " + " ".join(Random(1).choices(words, k=SYSTEM_WORDS))
        chats = cls(path, tokenizer, words, system)
        chats.overhead = chats.tokens(chats.body(words[:1])) - 1
        return chats

    def tokens(self, body: bytes) -> int:
        """Return how many tokens the prompt of a body really has."""
        prompt = read_prompt(parse(Kind.CHAT, body), self.tokenizer, ENGINE)
        assert prompt.exact, prompt.why
        return prompt.count

    def body(self, words: list[str], max_tokens: int = 64, *, stream: bool = False) -> bytes:
        """Return a chat of the system's prompt and the user's words."""
        before, after = self.around(len(words), max_tokens, stream=stream)
        return (before + " ".join(words) + after).encode()

    def around(self, words: int, max_tokens: int, *, stream: bool) -> tuple[str, str]:
        """Return what stands before and after so many words of the user."""
        messages = [{"role": "system", "content": self.system}, {"role": "user", "content": "Tell: %"}]
        rest: dict[str, Any] = {"max_tokens": max_tokens, "seed": self.overhead + words, "stream": stream}
        if stream:
            rest["stream_options"] = {"include_usage": True}
        text = json.dumps({"model": MODEL, "messages": messages, **rest}, separators=(",", ":"))
        before, _, after = text.partition("%")
        return before, after

    def drawn(self, count: int, chance: Random) -> list[str]:
        """Return some words."""
        return chance.choices(self.words, k=count)

    def write(self, path: Path, words: int, *, stream: bool) -> None:
        """Leave for chats.lua what it needs to make chats of so many words, and 64 tokens in answer."""
        around = self.around(words, 64, stream=stream)
        path.write_text("\n".join([*around, str(words), *self.words]) + "\n")


def _words(directory: Path) -> list[str]:
    """Return words that are one token each behind a space."""
    vocabulary = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    found = sorted(word[1:] for word in vocabulary if _WORD.fullmatch(word))
    return Random(1).sample(found, WORDS)
