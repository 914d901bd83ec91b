"""One request as Envoy tells of it: headers, body, then the answer's headers and body.

With FULL_DUPLEX_STREAMED bodies nothing is answered before the choice is made, and every piece is sent
back; with BUFFERED ones each message is answered as it comes. Without the answer's body the load counts
until its headers only: response_body_mode should not be NONE.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from router.api.routes import kind_of, not_routed
from router.epp.messages import (
    DESTINATION,
    common,
    fields,
    metadata,
    pieces,
    refusal,
    subset,
)
from router.epp.modes import BUFFERED, FULL_DUPLEX
from router.errors import BadRequest, BodyTooLarge, RouterError
from router.prompts.request import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from router.api.picking import Pick
    from router.epp.passage import Passage
    from router.epp.picker import Picker
    from router.proxy.headers import Field

# What any worker may be asked, for nobody else answers it where Envoy carries the bytes.
_ASKED = re.compile(r"/health|/v1/models(?:/[\w.~:@-]+)*", re.ASCII)
_ASKING = frozenset({b"GET", b"HEAD"})
_STATUS = re.compile(rb"[0-9]{3}")
Response: TypeAlias = ext_proc.ProcessingResponse


class Stream:
    """The state of one request. `answer` is to be called with each message, `close` at the end."""

    def __init__(self, picker: Picker) -> None:
        self._picker = picker
        self._among: frozenset[str] | None = None
        self._body: list[bytes] = []
        self._size = 0
        self._begins = False
        self._length = 0
        self._mode: int | None = None
        self._duplex = (False, False)
        self._pick: Pick | None = None
        self._passage: Passage | None = None

    async def answer(self, message: ext_proc.ProcessingRequest) -> list[Response]:
        """Return what a message is answered with: nothing, or several messages."""
        if message.HasField("protocol_config"):
            modes = message.protocol_config
            self._mode = modes.request_body_mode
            self._duplex = (
                modes.request_body_mode == FULL_DUPLEX,
                modes.response_body_mode == FULL_DUPLEX,
            )
        kind = message.WhichOneof("request")
        try:
            if kind == "request_headers":
                return await self._begun(message)
            if kind == "request_body":
                return await self._goes_on(message.request_body)
            if kind == "request_trailers":
                return await self._trailers()
        except RouterError as error:
            return [self._refused(error)]
        return list(self._of_answer(message))

    def close(self) -> None:
        """The request is over, or nobody tells of it any more."""
        self._let_go()
        if self._pick is not None:
            self._pick.close()
        if self._passage is not None:
            self._passage.end()

    def _refused(self, error: RouterError) -> Response:
        self._let_go()
        self._told(Kind.OTHER, []).refused(error)
        return refusal(error)

    def _told(self, kind: Kind, headers: list[Field]) -> Passage:
        """Return what the request is told of by, from its first message on."""
        if self._passage is None:
            self._passage = self._picker.passage(kind, headers)
        return self._passage

    async def _begun(self, message: ext_proc.ProcessingRequest) -> list[Response]:
        if self._begins:
            raise BadRequest("a stream is of one request: expected its headers once")
        self._begins = True
        headers = fields(message.request_headers)
        said = dict(headers)
        method, path = said.get(b":method", b""), said.get(b":path", b"").partition(b"?")[0].decode("latin-1")
        kind = kind_of(method, path)
        self._told(kind or Kind.OTHER, headers)
        self._hold(message.request_headers.ByteSize())
        self._among = subset(message)
        if kind is None and not (method in _ASKING and _ASKED.fullmatch(path)):
            raise not_routed(method.decode("latin-1"), path)
        if message.request_headers.end_of_stream:
            return await self._choose(headers=True, body=False)
        self._picker.modes.check(self._mode)
        return [] if self._duplex[0] else [Response(request_headers=ext_proc.HeadersResponse())]

    async def _goes_on(self, body: ext_proc.HttpBody) -> list[Response]:
        self._picker.modes.check(self._mode)
        self._take(body.body)
        whole = body.end_of_stream or self._mode == BUFFERED  # there trailers can follow
        return await self._choose(headers=self._duplex[0], body=True) if whole else []

    async def _trailers(self) -> list[Response]:
        """A body that ends with trailers has no piece that is marked as its last."""
        chosen = []
        if self._duplex[0] and self._pick is None:
            chosen = await self._choose(headers=True, body=True, last=False)
        return [*chosen, Response(request_trailers=ext_proc.TrailersResponse())]

    def _take(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > self._picker.most_bytes:
            raise BodyTooLarge(f"the body is larger than {self._picker.most_bytes} bytes")
        self._hold(len(piece))
        self._body.append(piece)

    def _hold(self, size: int) -> None:
        self._picker.bodies.take(size)
        self._size += size

    def _let_go(self) -> None:
        """Hold nothing of the request any more."""
        self._picker.bodies.give_back(self._size)
        self._size = 0
        self._body.clear()

    async def _choose(self, *, headers: bool, body: bool, last: bool = True) -> list[Response]:
        """Return the choice, where Envoy waits for it: with the headers, or with the body."""
        if self._pick is not None:
            raise BadRequest("a stream is of one request: expected nothing behind its end")
        if self._passage is None:
            raise BadRequest("a stream is of one request: expected its headers first")
        whole = b"".join(self._body)
        self._pick, endpoint = await self._picker.pick(whole, self._passage, self._among)
        self._let_go()
        said = common([(DESTINATION.encode(), endpoint.encode()), *self._pick.pins])
        chosen = metadata(endpoint)
        found = []
        if headers:
            answer = ext_proc.HeadersResponse(response=said)
            found.append(Response(request_headers=answer, dynamic_metadata=chosen))
        if body and self._duplex[0]:
            found += [Response(request_body=piece) for piece in pieces(whole, last=last)]
        elif body:
            found.append(Response(request_body=ext_proc.BodyResponse(response=said), dynamic_metadata=chosen))
        return found

    def _of_answer(self, message: ext_proc.ProcessingRequest) -> Iterator[Response]:
        kind = message.WhichOneof("request")
        if kind == "response_headers":
            yield self._answer_begins(message.response_headers)
        elif kind == "response_body":
            yield from self._answer_goes_on(message.response_body)
        elif kind == "response_trailers":
            self.close()
            yield Response(response_trailers=ext_proc.TrailersResponse())

    def _answer_begins(self, headers: ext_proc.HttpHeaders) -> Response:
        said: list[Field] = []
        if self._pick is not None:
            status = dict(fields(headers)).get(b":status", b"0")
            known = int(status) if _STATUS.fullmatch(status) else 0
            self._pick.began(known)
            if self._passage is not None:
                self._passage.answered(known)
            said = self._picker.told(self._pick)
        if headers.end_of_stream:
            self.close()
        return Response(response_headers=ext_proc.HeadersResponse(response=common(said)))

    def _answer_goes_on(self, body: ext_proc.HttpBody) -> Iterator[Response]:
        if self._pick is not None:
            self._pick.computed()
        if body.end_of_stream:
            self.close()
        if not self._duplex[1]:
            yield Response(response_body=ext_proc.BodyResponse())
            return
        for piece in pieces(body.body, last=body.end_of_stream):
            yield Response(response_body=piece)
