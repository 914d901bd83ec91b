"""The body of a client's request, read whole: routing needs all of it before anything is sent.

Bodies stay in memory until their requests end, for another worker may need them. All of them together are
bounded: who comes when that much is held is asked to come again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.errors import BodyTooLarge, Overloaded
from router.proxy.disconnect import ClientGone

if TYPE_CHECKING:
    from router.proxy.asgi import Message, Receive
    from router.proxy.cycle import Cycle

MOST_BYTES = 1 << 30


class BodyBudget:
    """How many bytes of bodies the process may hold; `held` is how many it does.

    Whoever has read a body with it gives `len(body)` back when the request has ended.
    """

    __slots__ = ("_most", "held")

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self.held = 0

    def take(self, size: int) -> None:
        """Hold `size` bytes more; raises Overloaded, with nothing taken, when that is too much."""
        held = self.held + size
        if held > self._most:
            raise Overloaded("the router holds too many request bodies now", retry_after=1)
        self.held = held

    def give_back(self, size: int) -> None:
        """Hold `size` bytes less."""
        self.held -= size


async def body_of(cycle: Cycle, limit: int, budget: BodyBudget) -> bytes:
    """Return the body of a request that is served past ASGI, as `read_body` does.

    One that says beforehand that it will be too large is not waited for.
    """
    body = cycle.body
    if cycle.more_body or cycle.disconnected or len(body) > limit:
        _check(cycle.declared_length(), limit)
        return await read_body(cycle.receive, limit, budget)
    cycle.body = b""
    budget.take(len(body))
    return bytes(body)


async def read_body(receive: Receive, limit: int, budget: BodyBudget | None = None) -> bytes:
    """Return the request's body, at most `limit` bytes; one that comes in one piece is not copied.

    Raises BodyTooLarge as soon as it is over the limit, Overloaded as soon as it is over what is left of the
    budget, ClientGone when the client leaves before the end; the budget has then got everything back.
    """
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] != "http.disconnect" and not message.get("more_body", False) and len(body) <= limit:
        if budget is not None:
            budget.take(len(body))
        return body
    return await _read_on(message, receive, limit, budget or BodyBudget(limit))


async def _read_on(message: Message, receive: Receive, limit: int, budget: BodyBudget) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        while message["type"] != "http.disconnect":
            piece = message.get("body", b"")
            _check(size + len(piece), limit)
            budget.take(len(piece))
            size += len(piece)
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)
            message = await receive()
    except BaseException:
        budget.give_back(size)
        raise
    budget.give_back(size)
    raise ClientGone


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise BodyTooLarge(f"the request body is larger than {limit} bytes")
