"""Fields put into a JSON body, and taken out of it, with all that stands beside them left as it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from router.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# vLLM's VLLM_MAX_N_SEQUENCES (0.32); it also bounds the rooms that are made for one request.
MOST_COPIES = 16_384
_MOST_DIGITS = 5

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Copies(msgspec.Struct):
    n: msgspec.Raw = msgspec.Raw(b"1")


_COPIES = msgspec.json.Decoder(_Copies)


def with_fields(
    body: bytes,
    fields: Mapping[str, bytes],
    *,
    instead: Mapping[str, bytes] | None = None,
    without: Collection[str] = (),
) -> bytes:
    """Return a JSON object with `fields` in it, values in JSON, and nothing else of these names.

    `instead` are fields to change only where they are there, `without` are to go. Values that stay are not
    looked into. 0.3 us and a copy when none of the names is in the body, else 3 us, and 1 ms a MiB. Raises
    BadRequest for a name that is not UTF-8.
    """
    names = (*fields, *(instead or ()), *without)
    if any(name.encode() in body for name in names):
        return _rebuilt(body, fields, instead or {}, without)
    return _appended(body, fields)


def _appended(body: bytes, fields: Mapping[str, bytes]) -> bytes:
    """Add fields at the end.

    A name that stands there in escapes is overruled: of equal names the last one counts, for json, orjson
    and msgspec alike.
    """
    if not fields:
        return body
    head = body[: body.rindex(b"}")].rstrip()
    added = b",".join(b'"%b":%b' % (name.encode(), value) for name, value in fields.items())
    return b"".join((head, b"" if head.endswith(b"{") else b",", added, b"}"))


def _rebuilt(
    body: bytes, fields: Mapping[str, bytes], instead: Mapping[str, bytes], without: Collection[str]
) -> bytes:
    try:
        values = _FIELDS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest("the body is not a JSON object in UTF-8") from None
    for name in without:
        values.pop(name, None)
    changed = {name: value for name, value in instead.items() if name in values}
    values |= {name: msgspec.Raw(value) for name, value in (changed | dict(fields)).items()}
    return msgspec.json.encode(values)


def copies(body: bytes) -> int:
    """Return how many answers to each prompt are asked for, 1 where that cannot be told.

    Raises BadRequest for more than engines take.
    """
    digits = bytes(_COPIES.decode(body).n)
    if not digits.isdigit():
        return 1
    if len(digits) > _MOST_DIGITS or int(digits) > MOST_COPIES:
        raise BadRequest(f"n: expected at most {MOST_COPIES}, got {digits[:20].decode()}", param="n")
    return max(1, int(digits))
