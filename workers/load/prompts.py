"""Prompts of a workload as the body of a request: token ids, or text of about as many tokens."""

from __future__ import annotations

from array import array
from random import Random
from typing import TYPE_CHECKING

import msgspec

from workers.traces.workload import PATTERN, tokens_of

if TYPE_CHECKING:
    from workers.traces.workload import Ask

# Common words, each a token of its own (with the space before it) in the vocabularies in use.
_WORDS = (
    *("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school"),
    *("state", "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week"),
    *("company", "system", "program", "question", "work", "government", "number", "night", "point", "home"),
    *("water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book"),
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

FORMS = ("ids", "words", "letters")


def body(ask: Ask, *, form: str, vocabulary: int, model: str, salt: int = 0) -> bytes:
    """Return the JSON of a completion request; `vocabulary` counts for ids. 0.1 ms for 10,000 ids.

    Prompts of one `salt` share what their segments share, and nothing with those of another.
    """
    return msgspec.json.encode(
        {
            "model": model,
            "prompt": _prompt(ask, form, vocabulary, salt),
            "max_tokens": ask.output,
            "min_tokens": ask.output,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


def _prompt(ask: Ask, form: str, vocabulary: int, salt: int) -> list[int] | str:
    if form == "ids":
        return _ids(ask, vocabulary, salt).tolist()
    if form == "words":
        return "".join([" " + _WORDS[number] for number in _ids(ask, len(_WORDS), salt)])
    return "".join([_LETTERS[number] for number in _ids(ask, len(_LETTERS), salt)])


def _ids(ask: Ask, vocabulary: int, salt: int) -> array[int]:
    names = vocabulary**PATTERN  # that many differ
    shift = Random(salt).randrange(names) if salt else 0
    segments = tuple([((name + shift) % names, length) for name, length in ask.segments])
    return array("I", tokens_of(segments, vocabulary))
