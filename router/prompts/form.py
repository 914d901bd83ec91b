"""The model's name in a form, such as one that brings audio: all that routing wants of multipart/form-data.

The boundary is the body's first line (RFC 2046, 5.1.1). Parts are stepped over from one boundary to the next;
of each the head is looked at, and of the one named "model" the text. Where anything is not as it should be
there is no name, and the worker may say what is wrong.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

# OpenAI's forms have some ten fields.
MAX_PARTS = 128
# Bytes of one part's head, and of the name.
MAX_HEAD, MAX_NAME = 4096, 512
# How much is searched between two pauses: 0.1 to 0.5 ms.
STEP_BYTES = 512 * 1024

_FIRST_LINE = re.compile(rb"(--[0-9A-Za-z'()+_,./:=? -]{1,70})(?<! )\r\n")
_MODEL = re.compile(rb'content-disposition:[ \t]*form-data;[ \t]*name=(?:"model"|model)[ \t]*', re.IGNORECASE)


def is_form(body: bytes) -> bool:
    """Say whether a body may be a form."""
    return body.startswith(b"--")


def model_of(body: bytes) -> str | None:
    """Return the first of a form's fields named model, None if there is none. 1 us, and 0.5 ms per MiB."""
    search = search_model(body)
    try:
        while True:
            next(search)
    except StopIteration as end:
        name: str | None = end.value
        return name


def search_model(body: bytes) -> Generator[None, None, str | None]:
    """Do what `model_of` does in steps, each of so many bytes at most."""
    first = _FIRST_LINE.match(body)
    if first is None:
        return None
    boundary, at = b"\r\n" + first[1], first.end()
    for _ in range(MAX_PARTS):
        head_end = body.find(b"\r\n\r\n", at - 2, at + MAX_HEAD)
        if head_end < 0:
            return None
        if any(map(_MODEL.fullmatch, body[at:head_end].split(b"\r\n"))):
            return _text(body, head_end + 4, boundary)
        found = yield from _find(body, boundary, head_end + 2)
        at = found + len(boundary) + 2
        if found < 0 or body[at - 2 : at] != b"\r\n":
            return None  # the end of the form, or none at all
    return None


def _find(body: bytes, boundary: bytes, at: int) -> Generator[None, None, int]:
    """Return where the boundary is next, -1 if it is nowhere."""
    while at < len(body):
        found = body.find(boundary, at, at + STEP_BYTES + len(boundary))
        if found >= 0:
            return found
        at += STEP_BYTES
        yield
    return -1


def _text(body: bytes, at: int, boundary: bytes) -> str | None:
    end = body.find(boundary, at, at + MAX_NAME + len(boundary))
    try:
        return body[at:end].decode() or None if end >= 0 else None
    except UnicodeDecodeError:
        return None
