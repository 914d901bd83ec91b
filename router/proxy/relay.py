"""A worker's answer, passed on to the client byte for byte.

Nothing reaches the client before the first byte of the body is here: until then the answer can still come
from another worker. After it, an end that the worker did not mean is made visible: an error event in an
event stream, a broken connection in anything else. Pieces are passed on as they come, not looked into;
what the router wants to know is searched for in the last of them, once, when somebody asks.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.errors import UpstreamFailed
from router.proxy.headers import answer_headers
from router.proxy.pump import Pump

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from router.errors import RouterError
    from router.proxy.asgi import Send
    from router.proxy.edge import EdgeProtocol
    from router.proxy.headers import Field
    from router.proxy.response import Response

# Where the count is in what engines send: SGLang 0.5.23 and vLLM 0.32 put usage (OpenAI routes) and
# meta_info (SGLang's /generate) behind the text, in a stream in the last event or the one before [DONE].
TAIL_BYTES = 2048
_TAIL_PIECES = 4
# Their content-length, if any, is that of another answer (RFC 9110, 8.6); servers take it at its word.
_WITHOUT_BODY = (204, 304)
_COUNT = re.compile(rb'"\w+"\s*:\s*(\d+)')


@dataclass(slots=True)
class Relayed:
    """What became of an answer: `failure` says why it was cut after its first byte, if it was.

    `last` are its last pieces, whole.
    """

    status: int
    last: Iterable[bytes] = ()
    failure: UpstreamFailed | None = None

    @property
    def cached_tokens(self) -> int | None:
        """The engine's own count of the prompt's cached tokens, if the answer's last 2 KiB tell it."""
        return self._count(b'"cached_tokens"')

    @property
    def prompt_tokens(self) -> int | None:
        """The engine's own count of the prompt's tokens, if the answer's last 2 KiB tell it.

        /v1/responses and /v1/messages call it input_tokens.
        """
        count = self._count(b'"prompt_tokens"')
        return self._count(b'"input_tokens"') if count is None else count

    def _count(self, name: bytes) -> int | None:
        """Find the last number under `name`.

        A search for bytes: about 1 us. Text that a model wrote cannot look like it, its quotes are escaped.
        """
        tail = b"".join(self.last)[-TAIL_BYTES:]
        at = tail.rfind(name)
        found = _COUNT.match(tail, at) if at >= 0 else None
        return int(found[1]) if found else None


async def relay(
    response: Response,
    send: Send,
    *,
    extra: Iterable[Field] = (),
    on_start: Callable[[], None] | None = None,
    edge: EdgeProtocol | None = None,
) -> Relayed:
    """Pass an answer on, its hop-by-hop headers taken out and `extra` added, and close it.

    `on_start` is called once, right before the head goes out, with the first piece of the body (or its end)
    at hand: from then on nobody else can answer.
    Raises UpstreamFailed only while nothing has been sent. Of a cut after that it tells in what it
    returns: an event stream has then been ended with an error event; anything else is left unfinished,
    for which the server closes the client's connection once the application returns. With the `edge`
    that `send` leads to (`ClientWatch.edge`) the head goes out together with the first piece.
    """
    relayed = Relayed(response.status)
    try:
        piece = await response.read()
        complete = response.complete
        headers = answer_headers(response.headers, extra)
        if response.status in _WITHOUT_BODY:
            headers = [field for field in headers if field[0] != b"content-length"]
        if on_start is not None:
            on_start()
        if edge is not None:
            edge.hold()
        try:
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            await send({"type": "http.response.body", "body": piece, "more_body": not complete})
        finally:
            if edge is not None:
                edge.release()
        if complete:
            relayed.last = (piece,)
        else:
            await _stream(response, send, piece, relayed, edge)
    finally:
        response.close()
    return relayed


async def _stream(
    response: Response, send: Send, piece: bytes, relayed: Relayed, edge: EdgeProtocol | None
) -> None:
    relayed.last = last = deque((piece,), _TAIL_PIECES)
    pump = Pump(response, send, last)
    more = True
    try:
        while more:
            await pump.run()
            piece = await response.read()
            more = not response.complete
            last.append(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": more})
    except UpstreamFailed as failure:
        relayed.failure = failure
        await interrupt(response, send, failure, edge)


async def interrupt(
    response: Response, send: Send, failure: RouterError, edge: EdgeProtocol | None = None
) -> None:
    """End an answer that has begun and will not be whole, so that its client can see it."""
    if _can_take_an_event(response.headers):
        event = b"\n\ndata: " + failure.body() + b"\n\n"
        await send({"type": "http.response.body", "body": event})
    elif edge is not None:
        edge.cut()


def _can_take_an_event(headers: Iterable[Field]) -> bool:
    """Return True for an event stream whose length has not been promised."""
    fields = dict(headers)
    kind = fields.get(b"content-type", b"")
    return kind.startswith(b"text/event-stream") and b"content-length" not in fields
