"""The body of a client's request, read whole: routing needs all of it before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.errors import BodyTooLarge
from router.proxy.disconnect import ClientGone

if TYPE_CHECKING:
    from router.proxy.asgi import Message, Receive


async def read_body(receive: Receive, limit: int) -> bytes:
    """Return the request's body, at most `limit` bytes; one that comes in one piece is not copied.

    Raises BodyTooLarge as soon as it is over the limit, ClientGone when the client leaves before the end.
    """
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] != "http.disconnect" and not message.get("more_body", False) and len(body) <= limit:
        return body
    return await _read_on(message, receive, limit)


async def _read_on(message: Message, receive: Receive, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while message["type"] != "http.disconnect":
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise BodyTooLarge(f"the request body is larger than {limit} bytes")
        if not message.get("more_body", False):
            return b"".join(pieces)
        message = await receive()
    raise ClientGone
