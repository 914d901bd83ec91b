"""What a PromQL expression names: metrics, the labels it selects by, and those it groups by."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_LEFT_OUT = re.compile(r'\{[^}]*\}|\[[^\]]*\]|"[^"]*"')
_NAME = re.compile(r"(?<![\w:.$])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])")
_WORDS = frozenset({"and", "or", "unless", "bool", "offset"})


@dataclass(frozen=True)
class Matcher:
    """A label of a metric, and the values that it is compared with."""

    metric: str
    label: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Uses:
    """What one expression names."""

    metrics: frozenset[str]
    matchers: tuple[Matcher, ...]
    grouped: frozenset[str]


def uses(expression: str) -> Uses:
    """Return what an expression names."""
    matchers = tuple(
        Matcher(metric, label, tuple(value.split("|")) if "~" in operator else (value,))
        for metric, selectors in _SELECTOR.findall(expression)
        for label, operator, value in _MATCHER.findall(selectors)
    )
    bare = _LEFT_OUT.sub(" ", expression)
    grouped = {
        label.strip() for labels in _GROUPING.findall(bare) for label in labels.split(",") if label.strip()
    }
    names = set(_NAME.findall(_GROUPING.sub(" ", bare))) - _WORDS
    return Uses(frozenset(names), matchers, frozenset(grouped))
