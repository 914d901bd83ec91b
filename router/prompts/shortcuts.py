"""The quick ways of a compiled template, as source: each up to its "else", where the sandbox's way follows.

A way is quick where the types are exactly those for which the sandbox would come to the same.
"""

from __future__ import annotations

from typing import NamedTuple

from router.prompts.bounds import MAX_ITEMS

LOOP = {
    "index0": "{0}.index0",
    "index": "({0}.index0 + 1)",
    "first": "({0}.index0 == 0)",
    "last": "({0}.index0 == {0}.final)",
    "length": "({0}.final + 1)",
    "revindex": "({0}.final + 1 - {0}.index0)",
    "revindex0": "({0}.final - {0}.index0)",
    "previtem": "{0}.previtem",
    "nextitem": "{0}.nextitem",
}
"""What a ListLoop can be asked for, and how."""

TEXT_METHODS = {
    "startswith": "{}",
    "endswith": "{}",
    "strip": "budget.charged({})",
    "lstrip": "budget.charged({})",
    "rstrip": "budget.charged({})",
    "split": "budget.charged({})",
}
"""Methods of a text that are called directly, up to MAX_ITEMS characters; what they make is counted."""

DICT_METHODS = frozenset({"get", "items", "keys", "values"})
"""Methods of a mapping that are called directly; they make nothing."""

TESTS = {
    "defined": "not isinstance({}, Undefined)",
    "undefined": "isinstance({}, Undefined)",
    "string": "isinstance({}, str)",
    "none": "{} is None",
    "true": "{} is True",
    "false": "{} is False",
}
"""jinja2's tests that are one operation."""

OF_DICT = frozenset(dir(dict))
"""What `x.y` finds on a mapping before it looks for a key."""


class Operand(NamedTuple):
    """The source of an operand: by itself, to evaluate and keep it, to look at what was kept, and that whole.

    What was kept may be jinja2's `missing`, which is of no type that is looked for; whole it is Undefined.
    """

    source: str
    first: str
    kept: str
    whole: str


def of_loop(of: Operand, name: str) -> str:
    """Ask a loop over a list."""
    return f"{LOOP[name].format(of.kept)} if type({of.first}) is ListLoop"


def of_space(of: Operand, name: str) -> str:
    """Look into a namespace."""
    return f"{of.kept}.held[{name!r}] if type({of.first}) is Space and {name!r} in {of.kept}.held"


def of_dict(of: Operand, key: str, *, for_truth: bool) -> str:
    """Look into a mapping; what is only tested for truth may be None in place of an Undefined."""
    if for_truth and key not in OF_DICT:
        return f"{of.kept}.get({key!r}) if type({of.first}) is dict"
    return f"{of.kept}[{key!r}] if type({of.first}) is dict and {key!r} in {of.kept}"


def of_method(of: Operand, method: str, arguments: str) -> str:
    """Call a method of a text or a mapping."""
    called = f"{of.kept}.{method}({arguments})"
    if method in DICT_METHODS:
        return f"{called} if type({of.first}) is dict"
    return (
        f"{TEXT_METHODS[method].format(called)} if type({of.first}) is str and len({of.kept}) <= {MAX_ITEMS}"
    )


def trimmed(of: Operand) -> str:
    """Apply the filter `trim`."""
    return f"budget.charged({of.kept}.strip()) if type({of.first}) is str"


def tested(of: Operand, test: str) -> str:
    """Apply a test, whatever the operand is: there is no "else"."""
    if of.first != of.kept:
        return TESTS[test].format(of.source)
    missing = {"defined": f"{of.kept} is not missing and ", "undefined": f"{of.kept} is missing or "}
    return missing.get(test, "") + TESTS[test].format(of.kept)


def joined(parts: list[Operand | str]) -> str:
    """Put constants and operands together as one text, once its size was counted."""
    values = [part for part in parts if isinstance(part, Operand)]
    fixed = sum(len(part) for part in parts if isinstance(part, str))
    made = " ".join(repr(part) if isinstance(part, str) else f"f'{{{part.kept}}}'" for part in parts)
    are_texts = " & ".join(f"(type({of.first}) is str)" for of in values)
    size = " + ".join((*(f"len({of.kept})" for of in values), str(fixed)))
    return f"{made} if {are_texts} and budget.fits({size})"
