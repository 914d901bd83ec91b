"""Large bodies, decoded without holding up the event loop.

msgspec keeps the interpreter for as long as it decodes, so a thread would not help. What a body holds is
counted first (`structure`): with more values than any prompt needs it is refused. Then the prompt is cut out
of it, the rest is decoded as always, and the prompt in steps; what is too much to be decoded is left unread,
with the reason, and the request is routed by its size.

What remains in one step: scans, of 0.25 ms per megabyte of text, 0.7 of escapes and 7 ns per value; and one
message of a chat, of which a megabyte takes 0.3 ms (ASCII) to 1 ms.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from router.errors import BadRequest
from router.prompts.decoding import (
    MAX_PROMPTS,
    decode,
    decode_at,
    packed_in_pieces,
    text_in_pieces,
    too_many,
)
from router.prompts.fields import (
    NOTHING,
    Chat,
    Completions,
    Generate,
    Message,
    Messages,
    Other,
    Responses,
    Shape,
    Turn,
)
from router.prompts.form import is_form, search_model
from router.prompts.request import Kind, Request, no_prompt, parse, whole, with_prompts
from router.prompts.structure import Structure, is_modest, structure_of

if TYPE_CHECKING:
    from router.prompts.fields import Shared

LARGE_BYTES = 65_536
"""The length of a body from which on it is read here: decoding so many bytes of lists takes 4 ms."""

MODEST_BYTES = 1024 * 1024
"""The length of a body up to which it may be decoded in one step after all, if there is mostly text in it."""

MAX_READ_BYTES = 8 * 1024 * 1024
"""The longest prompt that is read, in bytes of JSON: more than a million tokens."""

MAX_VALUES = 1_250_000
"""The most values, lists and objects in a body; token ids are values."""

MAX_ESCAPES = 262_144
"""The most escaped characters in one message: each takes 20 ns."""

STEP_BYTES = 262_144
"""How much of a conversation is decoded between two pauses, in whole messages."""

_PROMPTS: dict[Kind, tuple[str, ...]] = {
    Kind.COMPLETIONS: ("prompt",),
    Kind.CHAT: ("messages",),
    Kind.GENERATE: ("input_ids", "text"),
    Kind.RESPONSES: ("input",),
    Kind.MESSAGES: ("messages",),
}
"""The fields that hold the prompt; of two, the first that is there counts."""

_TYPES: dict[Kind, type[Shared]] = {
    Kind.COMPLETIONS: Completions,
    Kind.CHAT: Chat,
    Kind.GENERATE: Generate,
    Kind.RESPONSES: Responses,
    Kind.MESSAGES: Messages,
}

_ITEMS: dict[Kind, msgspec.json.Decoder[Any]] = {
    Kind.CHAT: msgspec.json.Decoder(Message),
    Kind.RESPONSES: msgspec.json.Decoder(dict[str, Any]),
    Kind.MESSAGES: msgspec.json.Decoder(Turn),
}
"""What the list of a conversation consists of."""


def _with_raw_prompt(kind: Kind) -> msgspec.json.Decoder[Any]:
    """Return a decoder of a body's fields that leaves its prompt as it is."""
    fields = [(name, msgspec.Raw, NOTHING) for name in _PROMPTS[kind]]
    unread = msgspec.defstruct(_TYPES[kind].__name__, fields, bases=(_TYPES[kind],), kw_only=True, gc=False)
    return msgspec.json.Decoder(unread)


_FIELDS = {kind: _with_raw_prompt(kind) for kind in _TYPES}
_SHAPE = msgspec.json.Decoder(Shape)
_SHARED = msgspec.json.Decoder(Other)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])


async def parse_large(kind: Kind, body: bytes) -> Request:
    """Do what `request.parse` does, in steps of about 1 ms. Raises BadRequest."""
    if len(body) <= MODEST_BYTES and is_modest(body):
        return parse(kind, body)
    if kind is Kind.OTHER and is_form(body):
        return Request(kind, Other(model=await _form_model(body)), None, (), 0, len(body))
    if kind is Kind.OTHER and not body.lstrip().startswith(b"{"):
        return parse(kind, body)
    found = await structure_of(body)
    if found.holders + found.commas > MAX_VALUES and not (
        kind is Kind.GENERATE and b'"input_embeds"' in body
    ):
        raise BadRequest(f"the body: expected at most {MAX_VALUES:,} values, lists and objects")
    if kind is Kind.OTHER:
        return parse(kind, body)
    prompt = await _within(body, found) if found.is_much or len(body) > MAX_READ_BYTES else found
    if prompt is None:
        shared = msgspec.structs.asdict(decode(_SHARED, body))
        return _unread(kind, _TYPES[kind](**shared), "what is beside the prompt", len(body))
    fields = decode(_FIELDS[kind], body)
    await asyncio.sleep(0)
    return await _parsed(kind, fields, len(body), prompt)


async def _form_model(body: bytes) -> str | None:
    search = search_model(body)
    while True:
        try:
            next(search)
        except StopIteration as end:
            name: str | None = end.value
            return name
        await asyncio.sleep(0)


async def _within(body: bytes, found: Structure) -> Structure | None:
    """Return what the prompt holds of what was `found`, or None when there is too much beside it."""
    shape = decode(_SHAPE, body)
    await asyncio.sleep(0)
    given = (getattr(shape, name) for name in shape.__struct_fields__)
    raws = [raw for raw in given if isinstance(raw, msgspec.Raw)]
    if len(body) - sum(len(memoryview(raw)) for raw in raws) > MAX_READ_BYTES:
        return None
    prompt = await _sum(raws) if found.is_much else found
    return None if found.without(prompt).is_much else prompt


async def _sum(raws: list[msgspec.Raw]) -> Structure:
    found = [await structure_of(bytes(raw)) for raw in raws]
    return Structure(sum(each.holders for each in found), sum(each.commas for each in found))


def _unread(kind: Kind, fields: Any, what: str, size: int) -> Request:
    return Request(kind, fields, None, (), 0, size, f"{what} is too large to be read")


async def _parsed(kind: Kind, fields: Any, size: int, found: Structure) -> Request:
    """Return the request of `fields`, in which the prompt is still as it came; `found` is what it holds."""
    raws = {name: getattr(fields, name) for name in _PROMPTS[kind]}
    for name in raws:
        setattr(fields, name, None)
    given = [name for name, raw in raws.items() if len(memoryview(raw)) > len(memoryview(NOTHING))]
    param = given[0] if given else _PROMPTS[kind][-1]
    if len(memoryview(raws[param])) > MAX_READ_BYTES or (kind in _ITEMS and found.is_much):
        return _unread(kind, fields, param, size)
    raw = bytes(raws[param])
    if kind not in _ITEMS:
        return with_prompts(kind, fields, await _completion(raw, param), param, size)
    if raw != b"null":
        items = await _conversation(kind, raw, param)
        if items is None:
            return _unread(kind, fields, f"a part of {param}", size)
        setattr(fields, param, items)
    return whole(kind, fields, size)


async def _completion(raw: bytes, param: str) -> Any:
    """Return the one or many prompts of a completion."""
    if raw == b"null":
        return None
    start = raw.lstrip(b"[ \t\r\n")[:1] if raw[:1] == b"[" else raw[:1]
    if start == b'"' and param != "input_ids":
        return await (_texts(raw, param) if raw[:1] == b"[" else text_in_pieces(raw, param))
    if (
        raw[:1] != b"["
        or param == "text"
        or not (start.isdigit() or start == b"-" or raw[1:].lstrip()[:1] == b"[")
    ):
        raise no_prompt(param)
    return await packed_in_pieces(raw, param)


async def _texts(raw: bytes, param: str) -> list[str]:
    if raw.count(b",") >= MAX_PROMPTS and (await structure_of(raw)).commas >= MAX_PROMPTS:
        raise too_many(param)
    return [await text_in_pieces(bytes(text), param) for text in decode_at(_RAWS, raw, param)]


async def _conversation(kind: Kind, raw: bytes, param: str) -> Any:
    """Return the items of a conversation, or None when one of them would take too long."""
    if raw.startswith(b'"') and kind is Kind.RESPONSES:
        return await text_in_pieces(raw, param)
    items, read = [], 0
    raws = decode_at(_RAWS, raw, param)
    for at, item in enumerate(map(bytes, raws)):
        if item.count(b"\\") > MAX_ESCAPES:
            return None
        items.append(decode_at(_ITEMS[kind], item, f"{param}[{at}]"))
        read += len(item)
        if read > STEP_BYTES:
            read = 0
            await asyncio.sleep(0)
    return items
