"""How much a value holds that a template has made: characters and items, counted as often as they are in it.

A list that holds another one twice, and so on, is small in memory, but as text, or compared with its like, it
is as large as its weight.
"""

from __future__ import annotations

from typing import Any

from jinja2 import TemplateError
from jinja2.utils import Namespace

from router.prompts.bounds import MAX_CHARACTERS, too_large

MAX_DEPTH = 200
"""How deep lists and mappings may be nested in those that a template makes."""


def weigh(value: Any) -> int:
    """Return the weight of a list or mapping; raise TemplateError when it is too much, or nested too deeply.

    0.2 us for each list or mapping that is in it, seen once each.
    """
    return _weight(value, 0, {})


def _weight(value: Any, depth: int, known: dict[int, int]) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Namespace):
        value = getattr(value, "held", None)
    if not isinstance(value, list | tuple | dict):
        return 1
    if id(value) in known:
        return known[id(value)]
    if depth == MAX_DEPTH:
        raise TemplateError("the chat template makes lists that are nested too deeply")
    total = 1 + len(value)
    for item in value.values() if isinstance(value, dict) else value:
        total += len(item) if type(item) is str else _weight(item, depth + 1, known)
    if total > MAX_CHARACTERS:
        raise too_large()
    known[id(value)] = total
    return total
