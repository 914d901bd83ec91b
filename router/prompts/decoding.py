"""JSON into typed fields, and what is wrong with a body that cannot be decoded.

Token ids cost 60 ns each, far more than text; a body full of them is decoded in pieces, so that the event
loop is never held up for long.
"""

from __future__ import annotations

import asyncio
import json
import re
from array import array
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from router.errors import BadRequest
from router.prompts.fields import TokenId

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

MAX_PROMPTS = 4096
"""The most prompts in one body, twice as many as OpenAI takes in one; each is tokenised by itself."""

PIECE_BYTES = 65_536
"""How much JSON of token ids is decoded at once: 10,000 ids or so, 0.5 ms."""

PIECE_TEXT_BYTES = 524_288
"""How much JSON of text is decoded at once: 0.2 to 1.3 ms."""

DIAGNOSED_BYTES = 65_536
"""The longest body in which the field at fault is looked for when it is not valid JSON: it takes 3 ms."""

SEARCHED_BYTES = 16_384
"""How much of a body that is nested too deeply is searched for the field: 2 ms at most."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_PAIR = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]")
_IDS = msgspec.json.Decoder(list[TokenId])
_TEXT = msgspec.json.Decoder(str)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode `body`; raise BadRequest naming the field and what was expected."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_json(body, error) from None
    except RecursionError:
        raise _too_deep(body) from None


def decode_at(decoder: msgspec.json.Decoder[T], raw: bytes, place: str) -> T:
    """Decode a part of a body; raise BadRequest naming its `place` there."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _wrong_field(str(error), place) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{place}: {_what(error)}", param=_top(place)) from None
    except RecursionError:
        raise BadRequest(f"{place}: nested too deeply", param=_top(place)) from None


async def text_in_pieces(raw: bytes, param: str) -> str:
    """Decode the JSON of a string, with pauses for others in between."""
    if len(raw) <= PIECE_TEXT_BYTES or raw[:1] != b'"':
        return decode_at(_TEXT, raw, param)
    pieces, start, last = [], 1, len(raw) - 1
    while start < last:
        end = _between(raw, start + PIECE_TEXT_BYTES) if last - start > PIECE_TEXT_BYTES else last
        pieces.append(decode_at(_TEXT, b'"' + raw[start:end] + b'"', param))
        start = end
        await asyncio.sleep(0)
    return "".join(pieces)


def _between(raw: bytes, at: int) -> int:
    """Return a place at or shortly before `at`, in the JSON of a string, where one character ends."""
    while raw[at] & 0xC0 == 0x80:  # noqa: PLR2004 (UTF-8: not the first byte of a character)
        at -= 1
    back = raw.rfind(b"\\", at - 12, at)
    if back < 0:
        return at
    window = raw[back - 63 : back + 1]
    run = len(window) - len(window.rstrip(b"\\"))
    if run == len(window):
        return len(raw) - 1
    if run % 2 == 0:
        return back + 1
    return back - 6 if _PAIR.match(raw, back - 6) else back


def too_many(param: str) -> BadRequest:
    """Return what is raised when a body has more prompts than one body may."""
    return BadRequest(f"{param}: expected at most {MAX_PROMPTS} prompts", param=param)


def pack(ids: Any, param: str) -> bytes:
    """Return token ids as u32 little-endian bytes; raise BadRequest for anything else among them."""
    try:
        return array("I", ids).tobytes()
    except TypeError:
        raise BadRequest(f"{param}: expected token ids only, or prompts only", param=param) from None


async def packed_in_pieces(raw: bytes, param: str) -> bytes | list[bytes]:
    """Decode the JSON text of token ids, or of a list of lists of them, with pauses for others in between.

    `raw` is well-formed JSON, an array whose first element is a number or an array. Raises BadRequest.
    """
    inner = raw.strip()[1:-1].strip()
    if not inner.startswith(b"["):
        return await _packed(inner, param)
    lists: list[bytes] = []
    *parts, behind = inner.split(b"]", MAX_PROMPTS + 1)
    if b"]" in behind:
        raise too_many(param)
    for part in parts:
        opened = part.lstrip(b", \t\r\n")
        if not opened.startswith(b"[") or behind:
            raise BadRequest(f"{param}: expected strings only, or lists of token ids only", param=param)
        lists.append(await _packed(opened[1:], param))
    return lists


async def _packed(inner: bytes, param: str) -> bytes:
    packed = bytearray()
    for piece in _pieces(inner):
        try:
            packed += array("I", _IDS.decode(b"[" + piece + b"]")).tobytes()
        except msgspec.DecodeError:
            raise BadRequest(f"{param}: expected token ids only, or prompts only", param=param) from None
        await asyncio.sleep(0)
    return bytes(packed)


def _pieces(inner: bytes) -> Iterator[bytes]:
    """Cut at commas."""
    start = 0
    while len(inner) - start > PIECE_BYTES:
        end = inner.find(b",", start + PIECE_BYTES)
        if end < 0:
            break
        yield inner[start:end]
        start = end + 1
    yield inner[start:]


def _wrong_field(text: str, place: str = "") -> BadRequest:
    """Turn msgspec's "Expected `int`, got `str` - at `$.prompt[1]`" around: the field first."""
    what, _, inner = text.partition(" - at `$")
    what = what[:1].lower() + what[1:]
    path = (place + inner.rstrip("`")).lstrip(".")
    return BadRequest(f"{path or 'the body'}: {what}", param=_top(path))


def _top(path: str) -> str | None:
    """Return the field of a body that a place is in."""
    field = re.match(r"\w+", path)
    return field.group() if field else None


def _what(error: Exception) -> str:
    """Say what is wrong with a string; msgspec takes the lone first half of a pair for an early end."""
    text = str(error)
    if "surrogate" in text or "truncated" in text:
        return "expected Unicode text, got a lone surrogate"
    return f"not valid JSON: {text}"


def _not_json(body: bytes, error: Exception) -> BadRequest:
    field = _field_with_lone_surrogate(body) if len(body) <= DIAGNOSED_BYTES else None
    if field is not None:
        return BadRequest(f"{field}: expected Unicode text, got a lone surrogate", param=field)
    half = "" if len(body) <= DIAGNOSED_BYTES else ", or has a lone surrogate in it"
    return BadRequest(f"the body is not valid JSON{half}: {error}")


def _field_with_lone_surrogate(body: bytes) -> str | None:
    r"""Find the field whose text holds half of a pair, as `"\ud800"`: JSON allows it, UTF-8 does not."""
    try:
        whole = json.loads(body)
    except (ValueError, RecursionError):
        return None
    for name, value in whole.items() if isinstance(whole, dict) else ():
        if not _encodable([name, value]):
            return str(name).encode("utf-8", "replace").decode()
    return None


def _encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def _too_deep(body: bytes) -> BadRequest:
    """Name the field that is nested most deeply in the beginning of a body."""
    depth, deepest, name, field = 0, 1, b"", b""
    for token in _TOKEN.findall(body[:SEARCHED_BYTES]):
        if token[:1] == b'"':
            name = token if depth == 1 else name
            continue
        depth += 1 if token in b"[{" else -1
        if depth > deepest:
            deepest, field = depth, name
    param = field.strip(b'"').decode("utf-8", "replace")
    return BadRequest(f"{param or 'the body'}: nested too deeply", param=param or None)
