"""Conversations with the engines: each turn's prompt is all of those before it, and something new."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from tests.prompts import corpus

if TYPE_CHECKING:
    from tests.engines_real.asking import Asked

Style = Literal["chat", "text", "ids"]
STYLES: tuple[Style, ...] = ("chat", "text", "ids")
KINDS = ("plain", "system", "unicode", "emoji", "code", "mixed", "tools")
_FIRST_ID, _LAST_ID = 1000, 100_000  # of ordinary tokens
_ANSWER_TOKENS = 12


@dataclass(slots=True)
class Talk:
    """One conversation, as a client of the given style holds it."""

    style: Style
    kind: str
    stream: bool
    chance: Random
    _messages: list[dict[str, Any]] = field(default_factory=list)
    _said: str = ""
    _ids: list[int] = field(default_factory=list)

    def body(self) -> dict[str, Any]:
        """Return the next turn's request."""
        common: dict[str, Any] = {"max_tokens": _ANSWER_TOKENS, "stream": self.stream}
        if self.style == "ids":
            self._ids += drawn(self.chance, self.chance.randint(30, 120))
            return common | {"prompt": self._ids, "return_token_ids": True}
        new = "\n".join(corpus.text(self.chance, self.kind) for _ in range(self.chance.randint(1, 2)))
        if self.style == "text":
            self._said += f"\n{new}"
            return common | {"prompt": self._said}
        self._messages.append({"role": "user", "content": new})
        tools = {"tools": corpus.TOOLS} if self.kind == "tools" else {}
        return common | {"messages": self._messages} | tools

    def heard(self, answer: Asked) -> None:
        """Take the answer into the conversation."""
        self._ids += answer.ids
        self._said += answer.text
        self._messages.append({"role": "assistant", "content": answer.text})


def talks(count: int, seed: int) -> list[Talk]:
    """Return so many conversations, of all styles and kinds, streaming or not; the same for the same seed."""
    return [
        Talk(
            STYLES[number % len(STYLES)],
            KINDS[number % len(KINDS)],
            stream=number % 2 == 1,
            chance=Random(f"{seed} {number}"),
        )
        for number in range(count)
    ]


def drawn(chance: Random, count: int) -> list[int]:
    """Return ids of ordinary tokens, in no order."""
    return [chance.randrange(_FIRST_ID, _LAST_ID) for _ in range(count)]


def several(seed: str, count: int, tokens: int) -> list[list[int]]:
    """Return so many prompts that begin differently; the same for the same seed."""
    return [drawn(Random(f"{seed} {number}"), tokens) for number in range(count)]
