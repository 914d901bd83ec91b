"""The one call that a worker makes to another: POST a JSON object, read a JSON object."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import msgspec


class CallFailed(Exception):
    """There was no answer, or it was not a 200."""


async def call(url: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of another worker; raises CallFailed. Cancelling it closes the connection."""
    parts = urlsplit(url)
    body = msgspec.json.encode(value)
    head = f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n"
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        with closing(writer):
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            return _answer(await reader.read())
    except OSError as error:
        raise CallFailed(f"{parts.netloc}: {error}") from error


def _answer(raw: bytes) -> dict[str, Any]:
    head, _, body = raw.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise CallFailed(head.partition(b"\r\n")[0].decode(errors="replace") or "the connection was closed")
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise CallFailed("an answer cut short") from error
