"""Request bodies: read whole, decoded to an object, fields taken with the type they must have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from workers.http.errors import BadRequest, EdgeError

if TYPE_CHECKING:
    from starlette.types import Receive

_decode = msgspec.json.Decoder().decode


class ClientGoneError(Exception):
    """The client has closed the connection before its request was complete."""


async def read(receive: Receive) -> bytes:
    """Return the whole body."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


def parse(body: bytes, *, empty: bool = False) -> dict[str, Any]:
    """Return the JSON object in a body; raises BadRequest in the engines' words for anything else."""
    if empty and not body:
        return {}
    try:
        value = _decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        message = (
            f"1 validation error:\n  {{'type': 'json_invalid', 'loc': ('body', 0), 'msg': {str(error)!r}}}"
        )
        raise EdgeError(message, status=400, kind="Bad Request") from error
    if not isinstance(value, dict):
        raise EdgeError("Input should be a valid dictionary", status=400, kind="Bad Request")
    return value


def _refuse(name: str, wanted: str) -> BadRequest:
    return BadRequest(f"{name} must be {wanted}", param=name)


def integer(
    body: dict[str, Any], name: str, default: int | None, *, least: int | None = None, most: int | None = None
) -> int | None:
    """Return an integer field within bounds; null and absent are the default."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refuse(name, "an integer")
    if least is not None and value < least:
        raise _refuse(name, f"at least {least}")
    if most is not None and value > most:
        raise _refuse(name, f"at most {most}")
    return value


def string(body: dict[str, Any], name: str) -> str | None:
    """Return a string field; null and absent are None."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise _refuse(name, "a string")
    return value


def boolean(body: dict[str, Any], name: str, *, default: bool) -> bool:
    """Return a boolean field; null and absent are the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _refuse(name, "a boolean")
    return value


def mapping(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object field; null and absent are the empty object."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _refuse(name, "an object")
    return value


def strings(body: dict[str, Any], name: str) -> list[str] | None:
    """Return a field that is a list of strings; null and absent are None."""
    value = body.get(name)
    if value is not None and not (isinstance(value, list) and all(isinstance(entry, str) for entry in value)):
        raise _refuse(name, "a list of strings")
    return value
