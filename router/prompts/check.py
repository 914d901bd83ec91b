"""Whether our token ids are the engine's: its own counts, and its /tokenize, held against ours.

A model of whose latest counts more than half are wrong is not trusted, nor one that has never been right: its
overlap counts for nothing, until as many of its counts have been right again in a row as it takes. A client
with odd requests does not switch it off for all, as long as others send more. A model that was never compared
is trusted.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from router.prompts.inexact import Inexact
from router.prompts.prompt import BYTES_PER_ID
from router.prompts.reader import read_prompt
from router.prompts.remote import ask, question_of
from router.prompts.request import Kind, parse

if TYPE_CHECKING:
    from router.prompts.request import Request
    from router.prompts.tokenizer import ChatTokenizer
    from router.proxy.upstream import Upstream

LATEST = 16
"""How many of its latest counts a model is judged by."""

DISTRUST_AFTER = 3
"""Wrong counts until a model is not trusted that has never been right."""

TRUST_AFTER = 8
"""Right counts in a row until it is trusted again."""

ASK_SECONDS = 5.0
"""How long a worker may take for each sample at registration."""

SAMPLES: tuple[tuple[Kind, dict[str, object]], ...] = (
    (Kind.COMPLETIONS, {"prompt": "Hello, World! 123 naïve 日本語 👍🏽\n\n\tdef f(x): return x  # done"}),
    (Kind.CHAT, {"messages": [{"role": "user", "content": "Hello, World!"}]}),
    (
        Kind.CHAT,
        {
            "messages": [
                {"role": "system", "content": "Be brief. "},
                {"role": "user", "content": "What is 2 + 2?"},
                {"role": "assistant", "content": "4"},
                {"role": "user", "content": "And in words?\n"},
            ]
        },
    ),
)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Record:
    """One model on one kind of engine: comparisons, the latest of them, and what was wrong last."""

    right: int = 0
    wrong: int = 0
    right_in_a_row: int = 0
    latest: deque[bool] = field(default_factory=lambda: deque(maxlen=LATEST))
    trusted: bool = True
    why: str = ""

    def note(self, difference: str) -> bool:
        """Enter one comparison, "" for equal; say whether the trust has changed."""
        before = self.trusted
        self.latest.append(not difference)
        if difference:
            self.wrong += 1
            self.right_in_a_row = 0
            self.why = difference
            self.trusted = self.trusted and not self._is_wrong
        else:
            self.right += 1
            self.right_in_a_row += 1
            self.trusted = self.trusted or self.right_in_a_row >= TRUST_AFTER
        return self.trusted != before

    @property
    def _is_wrong(self) -> bool:
        if not self.right:
            return self.wrong >= DISTRUST_AFTER
        return self.latest.count(False) > LATEST // 2


class SelfCheck:
    """Keeps a record of every model; `totals` are comparisons by outcome, over all of them."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], Record] = {}
        self.totals = {"right": 0, "wrong": 0}

    def trusts(self, model: str, engine: str) -> bool:
        """Whether a model's token ids may be matched against what its workers hold. One lookup."""
        record = self.records.get((model, engine))
        return record is None or record.trusted

    def proven(self, model: str, engine: str) -> bool:
        """Whether a model is trusted and has been right at least once."""
        record = self.records.get((model, engine))
        return record is not None and record.trusted and record.right > 0

    def why(self, model: str, engine: str) -> str:
        """Say what was wrong last, if anything was since it was last right often enough."""
        record = self.records.get((model, engine))
        return record.why if record is not None and not record.trusted else ""

    def counted(self, model: str, engine: str, ours: int, theirs: int) -> None:
        """Compare our count of a prompt's tokens with the engine's. About 0.3 us."""
        differs = f"the engine counts {theirs} prompt tokens, the router {ours}" if ours != theirs else ""
        self._note(model, engine, differs)

    def compared(self, model: str, engine: str, ours: bytes, theirs: bytes) -> None:
        """Compare our token ids (u32 little-endian) with the engine's."""
        self._note(model, engine, difference(ours, theirs))

    async def ask(self, upstream: Upstream, tokenizer: ChatTokenizer, model: str, engine: str) -> None:
        """Compare the samples with what a worker's POST /tokenize says; no answer says nothing."""
        for kind, body in SAMPLES:
            request = parse(kind, msgspec.json.encode({**body, "model": model}))
            try:
                theirs = await ask(upstream, question_of(request, engine), ASK_SECONDS)
                ours = _ids(tokenizer, request, engine)
            except Inexact as reason:
                _log.debug("model %s on %s is not compared: %s", model, engine, reason)
                continue
            self.compared(model, engine, ours, theirs)

    def _note(self, model: str, engine: str, differs: str) -> None:
        record = self.records.get((model, engine))
        if record is None:
            record = self.records[model, engine] = Record()
        changed = record.note(differs)
        self.totals["wrong" if differs else "right"] += 1
        if differs and (changed or record.latest.count(False) == 1):
            _log.warning("model %s on %s: %s", model, engine, differs)
        if changed:
            _log.warning(
                "model %s on %s: overlap counts %s",
                model,
                engine,
                "again" if record.trusted else "for nothing until the counts agree",
            )


def difference(ours: bytes, theirs: bytes) -> str:
    """Say where two prompts (u32 little-endian) differ first, or "" when they are equal."""
    if ours == theirs:
        return ""
    pairs = zip(_each(ours), _each(theirs), strict=False)
    at = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(ours), len(theirs)) // 4)
    pair = f"ours {_at(ours, at)}, the worker's {_at(theirs, at)}"
    return f"token ids differ first at {at} of {len(theirs) // BYTES_PER_ID}: {pair}"


def _ids(tokenizer: ChatTokenizer, request: Request, engine: str) -> bytes:
    prompt = read_prompt(request, tokenizer, engine)
    if not prompt.exact:
        raise Inexact(prompt.why)
    return prompt.tokens


def _each(tokens: bytes) -> memoryview:
    return memoryview(tokens).cast("I")


def _at(tokens: bytes, at: int) -> str:
    view = _each(tokens)
    return str(view[at]) if at < len(view) else "none"
