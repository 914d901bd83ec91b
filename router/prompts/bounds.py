"""What single operations of a chat template may make: each is refused before it is done, not after.

The checks see the arguments of an operator, of a text's method, or of a filter of jinja2.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_CHARACTERS = 64 * 1024 * 1024
"""The longest text that a template may make, in characters."""

MAX_ITEMS = 1024 * 1024
"""The longest list that a template may make."""

MAX_BITS = 4096
"""The longest number that a template may make."""

MAX_WIDTH = 4096
"""The widest padding, indentation or formatted field."""

_WIDTH = re.compile(r"\d{5,}|\*")


def too_large() -> TemplateError:
    """Return what is raised when a template goes too far."""
    return TemplateError("the chat template makes a text or a number that is too large")


def _bounded(number: Any, limit: int = MAX_WIDTH) -> None:
    if isinstance(number, int) and abs(number) > limit:
        raise too_large()


def _times(left: Any, right: Any) -> None:
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple | bytes) and isinstance(count, int):
            if len(sequence) * count > MAX_ITEMS:
                raise too_large()
            return
    if isinstance(left, int) and isinstance(right, int):
        _bounded(left.bit_length() + right.bit_length(), MAX_BITS)


def _power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _bounded(left.bit_length() * abs(right), MAX_BITS)


def _formatted(pattern: Any, *values: Any, **named: Any) -> None:
    """Check a pattern's widths, and how often it may show the largest of its values."""
    if not isinstance(pattern, str):
        return
    if _WIDTH.search(pattern):
        raise too_large()
    fields = pattern.count("%") + pattern.count("{")
    if fields * max((_shown(value) for value in (*values, *named.values())), default=0) > MAX_CHARACTERS:
        raise too_large()


def _shown(value: Any) -> int:
    """Return about how long the longest text in a value is, or the whole of it."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        value = tuple(value.values())
    return sum(_shown(item) for item in value) if isinstance(value, list | tuple) else 1


def _encoded(_: Any, encoding: Any = "utf-8", *__: Any, **___: Any) -> None:
    """Let texts be encoded in the usual ways; some others take the square of their length."""
    if str(encoding).lower() not in ("utf-8", "utf8", "ascii", "latin-1"):
        raise too_large()


def check_format(text: Any, *values: Any, **named: Any) -> None:
    """Check the pattern of `str.format`; a width may be a value ("{:{n}}"): braces in braces are refused."""
    depth = 0
    for brace in re.findall(r"[{}]", str(text).replace("{{", "").replace("}}", "")):
        depth += 1 if brace == "{" else -1
        if depth > 1:
            raise too_large()
    _formatted(str(text), *values, **named)


def _padded(_: Any, *values: Any, **named: Any) -> None:
    for value in (*values, *named.values()):
        _bounded(value)


def _replaced(text: Any, old: Any = "", new: Any = "", *_: Any, **__: Any) -> None:
    turns = str(text).count(str(old))
    if len(str(text)) + turns * len(str(new)) > MAX_CHARACTERS:
        raise too_large()


def _joined(separator: Any, values: Any = (), *_: Any) -> None:
    if not isinstance(values, list | tuple | str):
        _bounded(len(separator))
        return
    size = sum(len(value) if isinstance(value, str) else 0 for value in values)
    if size + len(separator) * len(values) > MAX_CHARACTERS:
        raise too_large()


def _joined_filter(values: Any, separator: Any = "", *_: Any, **__: Any) -> None:
    _joined(str(separator), values)


def _indented(text: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    unit = len(width) if isinstance(width, str) else width if isinstance(width, int) else 0
    _bounded(unit)
    if len(str(text)) + (str(text).count("\n") + 1) * unit > MAX_CHARACTERS:
        raise too_large()


def _split(text: Any, separator: Any = None, *_: Any, **__: Any) -> None:
    """Only a long text can have so many pieces that it is worth counting them."""
    if len(text) > MAX_ITEMS and (separator is None or text.count(separator) > MAX_ITEMS):
        raise too_large()


def _listed(values: Any, *_: Any, **__: Any) -> None:
    if isinstance(values, str | bytes) and len(values) > MAX_ITEMS:
        raise too_large()


def _rounded(_: Any, precision: Any = 0, *__: Any, **named: Any) -> None:
    for digits in (precision, *named.values()):
        _bounded(digits, 100)


def _refused(*_: Any, **__: Any) -> None:
    raise too_large()


def checked(work: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    """Return the filter or method `work` with a check of its arguments before it.

    jinja2 hands some filters the environment or the context first, by a mark on the function, which stays;
    the check sees the arguments after it.
    """
    marked = hasattr(work, "jinja_pass_arg")

    @wraps(work)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        check(*(args[1:] if marked else args), **kwargs)
        return work(*args, **kwargs)

    return guarded


def counted(work: Callable[..., Any], count: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the filter `work`, whose results go through `count`."""

    @wraps(work)
    def counting(*args: Any, **kwargs: Any) -> Any:
        return count(work(*args, **kwargs))

    return counting


BINOP_CHECKS: dict[str, Callable[[Any, Any], None]] = {"*": _times, "**": _power, "%": _formatted}

METHOD_CHECKS: dict[str, Callable[..., None]] = {
    "center": _padded,
    "encode": _encoded,
    "expandtabs": _padded,
    "ljust": _padded,
    "rjust": _padded,
    "zfill": _padded,
    "join": _joined,
    "replace": _replaced,
    "rsplit": _split,
    "split": _split,
    "splitlines": _split,
    "to_bytes": _padded,
    "translate": _refused,
}

FILTER_CHECKS: dict[str, Callable[..., None]] = {
    "center": _padded,
    "format": _formatted,
    "indent": _indented,
    "join": _joined_filter,
    "list": _listed,
    "round": _rounded,
    "replace": _replaced,
    "sort": _listed,
    "unique": _listed,
}
