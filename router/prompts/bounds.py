"""What single operations of a chat template may make: each is refused before it is done, not after.

The checks see the arguments of an operator, of a text's method, or of a filter of jinja2.
"""

from __future__ import annotations

import re
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


def _formatted(pattern: Any, *_: Any, **__: Any) -> None:
    if isinstance(pattern, str) and _WIDTH.search(pattern):
        raise too_large()


def _formatted_into(text: Any, *_: Any, **__: Any) -> None:
    """`str.format`: widths may be values too ("{:{width}}"), so braces in braces are refused."""
    depth = 0
    for brace in re.findall(r"[{}]", str(text).replace("{{", "").replace("}}", "")):
        depth += 1 if brace == "{" else -1
        if depth > 1:
            raise too_large()
    _formatted(str(text))


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


def _rounded(_: Any, precision: Any = 0, *__: Any, **named: Any) -> None:
    for digits in (precision, *named.values()):
        _bounded(digits, 100)


def _refused(*_: Any, **__: Any) -> None:
    raise too_large()


def checked(work: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    """Return the filter `work` with a check of its arguments before it.

    jinja2 hands some filters the environment or the context first, by a mark on the function; a filter with
    such a mark keeps it, and the check sees the arguments after it.
    """
    marked = hasattr(work, "jinja_pass_arg")

    def guarded(*args: Any, **kwargs: Any) -> Any:
        check(*(args[1:] if marked else args), **kwargs)
        return work(*args, **kwargs)

    if marked:
        guarded.jinja_pass_arg = work.jinja_pass_arg  # type: ignore[attr-defined] # how jinja2 marks a function
    return guarded


BINOP_CHECKS: dict[str, Callable[[Any, Any], None]] = {"*": _times, "**": _power, "%": _formatted}

METHOD_CHECKS: dict[str, Callable[..., None]] = {
    "center": _padded,
    "expandtabs": _padded,
    "ljust": _padded,
    "rjust": _padded,
    "zfill": _padded,
    "format": _formatted_into,
    "format_map": _formatted_into,
    "join": _joined,
    "replace": _replaced,
    "to_bytes": _padded,
    "translate": _refused,
}

FILTER_CHECKS: dict[str, Callable[..., None]] = {
    "center": _padded,
    "format": _formatted,
    "indent": _indented,
    "join": _joined_filter,
    "round": _rounded,
    "replace": _replaced,
}
