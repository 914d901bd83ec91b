"""One worker's part in a pair's request, and what its answer means before anything is passed on.

An error is an error however it is told: by status, or as an event of a stream whose status was sent before
anything was known (SGLang 0.5.23 and vLLM 0.32 do so), alone or behind a choice that was aborted. What makes
it worth another try is that it says nothing of the request: no connection, 429, 5xx.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.errors import UpstreamFailed
from router.proxy.headers import laid_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.core.rank import Rank
    from router.proxy.headers import Field
    from router.proxy.response import Response
    from router.proxy.upstream import Upstream

# An error's text, or the answer of a prefill worker: one token, and in vLLM a number for each block.
MOST_BYTES = 16 * 2**20
REFUSALS = frozenset({429, 503})
_BAD, _SERVER = 400, 500
# Text that a model wrote cannot look like an event: its line ends and quotes are escaped.
_ERROR_EVENT = re.compile(rb'^data:\s*\{\s*"error"\s*:', re.MULTILINE)
_CODE = re.compile(rb'"code"\s*:\s*"?([45]\d\d)\b')
_ABORTED = re.compile(rb'\s*data:[^\n]*"finish_reason"\s*:\s*(?:\{\s*"type"\s*:\s*)?"abort"')


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that is an error: `code` is the status that it means, `status` its status line's."""

    code: int
    status: int
    headers: list[Field]
    body: bytes


class HalfFailed(Exception):
    """One half has failed before a byte of the pair's answer had gone to the client.

    `answer` is what its worker said, if it said anything; `failure` says what to tell the client if not.
    `own`: what it said cannot be the other half's fault. `shared`: it said nothing in time, and neither had
    the other one, so that either may have kept the other waiting.
    """

    def __init__(
        self,
        half: Half,
        failure: UpstreamFailed,
        answer: Answer | None = None,
        *,
        own: bool = False,
        shared: bool = False,
    ) -> None:
        super().__init__(failure.message)
        self.half = half
        self.failure = failure
        self.answer = answer
        self.own = own
        self.shared = shared

    @property
    def final(self) -> bool:
        """Whether it is about the request itself, so that no other pair would do better."""
        answer = self.answer
        return answer is not None and answer.code < _SERVER and not self.refused

    @property
    def refused(self) -> bool:
        """Whether the worker says that it takes no more now, and has done nothing."""
        return self.answer is not None and self.answer.code in REFUSALS


@dataclass(slots=True, eq=False)
class Half:
    """One rank's worker, asked with the client's target and headers and a body of its own.

    `pin`: the headers that pin a request to the rank, one of `ranks` that the worker has. `bootstrap`: host
    and port where the worker is asked for prompts, if it is SGLang's.
    """

    rank: Rank
    upstream: Upstream
    target: bytes
    headers: Sequence[Field]
    pin: Sequence[Field] = ()
    ranks: int = 1
    bootstrap: tuple[str, int] = ("", 0)

    async def ask(self, body: bytes, *, own: bool = False) -> Response:
        """Send the request; return its answer, which must be closed, once the first piece is here.

        `own`: nobody else has a part in it. Raises HalfFailed for an error of any kind. Cancelled while it
        waits, it cancels the request.
        """
        try:
            response = await self._sent(body)
            try:
                await self._check(response, own=own)
            except BaseException:
                response.close()
                raise
        except UpstreamFailed as failure:
            raise HalfFailed(self, failure) from failure
        return response

    async def whole(self, body: bytes, *, own: bool = False) -> bytes:
        """Send the request as `ask` does; return the whole body of its answer."""
        response = await self.ask(body, own=own)
        try:
            return await response.read_all(MOST_BYTES)
        except UpstreamFailed as failure:
            raise HalfFailed(self, failure) from failure
        finally:
            response.close()

    async def _sent(self, body: bytes) -> Response:
        headers = laid_over(self.headers, self.pin) if self.pin else self.headers
        upstream = self.upstream
        try:
            return await upstream.request(b"POST", self.target, headers, body)
        except UpstreamFailed as failure:
            if not failure.stale:
                raise
        return await upstream.request(b"POST", self.target, headers, body, fresh=True)

    async def _check(self, response: Response, *, own: bool) -> None:
        while not (_tells(response.pieces) or response.complete or response.failure is not None):
            await response.wait()
        code = response.status
        if code < _BAD:
            code = _told(b"".join(response.pieces)) or code
        if code >= _BAD:
            body = await response.read_all(MOST_BYTES)
            failure = UpstreamFailed(f"the worker {self.rank.worker} answered with an error, {code}")
            failure.sent = code not in REFUSALS
            answer = Answer(code, response.status, response.headers, body)
            raise HalfFailed(self, failure, answer, own=own)


def _tells(pieces: list[bytes]) -> bool:
    """Whether what has come says if there is an answer: an aborted one can have its reason still to come."""
    said = b"".join(pieces)
    return bool(said) and (not _ABORTED.match(said) or _ERROR_EVENT.search(said) is not None)


def _told(said: bytes) -> int | None:
    """Return the status of an error that a stream begins with, 500 where it names none; None: no error."""
    error = _ERROR_EVENT.search(said)
    if error is None:
        return None
    code = _CODE.search(said, error.end())
    return int(code[1]) if code else _SERVER
