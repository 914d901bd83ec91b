"""The one call that a worker makes to another: ask for a prompt's KV, and be told why it does not come."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import msgspec

_OK = b"HTTP/1.1 200 "
_MOST_BYTES = 65_536


class CallFailed(Exception):
    """There was no 200; the text says why, in the other worker's words if it spoke."""


class Told(msgspec.Struct):
    """What is answered once the KV has come: tokens of the prompt that were cached over there."""

    cached_tokens: int | None = None


class _Refused(msgspec.Struct):
    error: str = ""
    message: str = ""


async def call(address: tuple[str, int], question: dict[str, Any], seconds: float) -> Told:
    """Return the answer of another worker within so many seconds; raises CallFailed.

    Cancelling it closes the connection, which tells the other worker.
    """
    where = f"{address[0]}:{address[1]}"
    try:
        async with asyncio.timeout(seconds):
            return _answer(await _ask(address, question))
    except TimeoutError as error:
        raise CallFailed(f"{where} did not answer within {seconds:g} s") from error
    except (OSError, UnicodeError) as error:
        raise CallFailed(f"{where}: {error}") from error


async def _ask(address: tuple[str, int], question: dict[str, Any]) -> bytes:
    host, port = address
    body = msgspec.json.encode(question)
    name = f"[{host}]" if ":" in host else host
    head = f"POST /handover HTTP/1.1\r\nhost: {name}:{port}\r\nconnection: close\r\n"
    reader, writer = await asyncio.open_connection(host, port)
    with closing(writer):
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        raw = bytearray()
        while len(raw) < _MOST_BYTES and (piece := await reader.read(_MOST_BYTES)):
            raw += piece
        return bytes(raw)


def _answer(raw: bytes) -> Told:
    head, _, body = raw.partition(b"\r\n\r\n")
    if not head.startswith(_OK):
        raise CallFailed(_reason(head, body))
    try:
        return msgspec.json.decode(body, type=Told)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CallFailed("an answer that cannot be read, or was cut short") from error


def _reason(head: bytes, body: bytes) -> str:
    """Return what an answer says of itself: the text of its error, else its status, if there is any."""
    status = head.partition(b"\r\n")[0].decode(errors="replace")
    try:
        refused = msgspec.json.decode(body, type=_Refused)
    except (msgspec.DecodeError, RecursionError):
        refused = _Refused()
    return refused.error or refused.message or status or "the connection was closed"
