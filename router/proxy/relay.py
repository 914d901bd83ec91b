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
    from collections.abc import Callable, Iterable, Sequence

    from router.errors import RouterError
    from router.proxy.cycle import Cycle
    from router.proxy.headers import Field
    from router.proxy.response import Response

# Where the count is in what engines send: SGLang 0.5.23 and vLLM 0.32 put usage (OpenAI routes) and
# meta_info (SGLang's /generate) behind the text, in a stream in the last event or the one before [DONE].
TAIL_BYTES = 2048
_HOLDERS = (b'"usage"', b'"meta_info"')
_READ, _WRITTEN = b'"cache_read_input_tokens"', b'"cache_creation_input_tokens"'
_TAIL_PIECES = 4
# Their content-length, if any, is that of another answer (RFC 9110, 8.6); servers take it at its word.
_WITHOUT_BODY = (204, 304)
_COUNT = re.compile(rb'"\w+"\s*:\s*(\d+)')


@dataclass(slots=True)
class Relayed:
    """What became of an answer: `failure` says why it was cut after its first byte, if it was.

    `last` are its last pieces, whole, `pieces` how many it came in, `tail` the part of them that has the
    engine's counts, once somebody has looked for them.
    """

    status: int
    last: Sequence[bytes] = ()
    pieces: int = 1
    failure: UpstreamFailed | None = None
    tail: bytes | None = None

    def counts(self, *, prompt: bool = True) -> tuple[int | None, int | None]:
        """Return the engine's own counts of the prompt's tokens and of those that were cached, where told.

        Without `prompt` only the second is looked for.

        /v1/responses and /v1/messages call the first input_tokens, the latter those of it that were neither
        read from the cache nor written to it. A search for bytes in the last 2 KiB, as a rule: about 1 us.
        Text that a model wrote cannot look like a count, its quotes are escaped.
        """
        tail = self._end()
        cached = _count(tail, b'"cached_tokens"')
        if cached is None:
            cached = _count(tail, _READ)
        if not prompt:
            return None, cached
        tokens = _count(tail, b'"prompt_tokens"')
        return _input_tokens(tail) if tokens is None else tokens, cached

    def generated(self) -> int:
        """Return the engine's own count of the answer's tokens, 0 where it is not told. About 0.5 us."""
        tail = self._end()
        tokens = _count(tail, b'"completion_tokens"')
        return (_count(tail, b'"output_tokens"') if tokens is None else tokens) or 0

    def _end(self) -> bytes:
        if self.tail is None:
            last = self.last
            whole = last[0] if len(last) == 1 else b"".join(last)
            self.tail = whole[-TAIL_BYTES:]
            if not any(name in self.tail for name in _HOLDERS):
                # Token ids and logprobs of the prompt come behind the counts, if the client wants them.
                at = max(map(whole.rfind, _HOLDERS))
                self.tail = whole[at:] if at >= 0 else self.tail
        return self.tail


def _input_tokens(tail: bytes) -> int | None:
    tokens = _count(tail, b'"input_tokens"')
    return None if tokens is None else tokens + sum(_count(tail, name) or 0 for name in (_READ, _WRITTEN))


def _count(tail: bytes, name: bytes) -> int | None:
    at = tail.rfind(name)
    found = _COUNT.match(tail, at) if at >= 0 else None
    return int(found[1]) if found else None


async def relay(
    response: Response,
    cycle: Cycle,
    *,
    extra: Iterable[Field] = (),
    on_start: Callable[[], None] | None = None,
) -> Relayed:
    """Pass an answer on, its hop-by-hop headers taken out and `extra` added, and close it.

    `on_start` is called once, right after the head has gone out with the first piece of the body (or its
    end): from then on nobody else can answer.
    Raises UpstreamFailed only while nothing has been sent. Of a cut after that it tells in what it
    returns: an event stream has then been ended with an error event; anything else is left unfinished and
    the client's connection closed.
    """
    relayed = Relayed(response.status)
    try:
        piece = await response.read()
        complete = response.complete
        headers = answer_headers(response.headers, extra)
        if response.status in _WITHOUT_BODY:
            headers = [field for field in headers if field[0] != b"content-length"]
        cycle.begin(response.status, headers, piece, more=not complete)
        if on_start is not None:
            on_start()
        if complete:
            relayed.last = (piece,)
        else:
            await _stream(response, cycle, piece, relayed)
    finally:
        response.close()
    return relayed


async def _stream(response: Response, cycle: Cycle, piece: bytes, relayed: Relayed) -> None:
    relayed.last = last = deque((piece,), _TAIL_PIECES)
    pump = Pump(response, cycle, last)
    more = True
    try:
        while more:
            await pump.run()
            piece = await response.read()
            more = not response.complete
            last.append(piece)
            relayed.pieces += bool(piece)
            if more:
                cycle.write(piece)
        relayed.pieces += pump.pieces
        cycle.end(piece)
    except UpstreamFailed as failure:
        relayed.failure = failure
        interrupt(response, cycle, failure)


def interrupt(response: Response, cycle: Cycle, failure: RouterError) -> None:
    """End an answer that has begun and will not be whole, so that its client can see it."""
    if _can_take_an_event(response.headers):
        cycle.end(b"\n\ndata: " + failure.body() + b"\n\n")
    else:
        cycle.cut()


def _can_take_an_event(headers: Iterable[Field]) -> bool:
    """Return True for an event stream whose length has not been promised."""
    fields = dict(headers)
    kind = fields.get(b"content-type", b"")
    return kind.startswith(b"text/event-stream") and b"content-length" not in fields
