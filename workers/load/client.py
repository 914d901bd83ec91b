"""One request at a time of its own: sent when it is due, its streamed answer timed and counted."""

from __future__ import annotations

import re
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from router.errors import RouterError, UpstreamFailed, UpstreamTimeout
from workers.simulate.records import Record

if TYPE_CHECKING:
    from router.proxy.response import Response
    from router.proxy.upstream import Upstream
    from workers.traces.workload import Ask

TARGET = b"/v1/completions"
_HEADERS = ((b"content-type", b"application/json"),)
_SESSION = b"x-session-id"
_OK = 200
_TAIL_BYTES = 4096  # the usage comes last
_DONE = b"[DONE]"
_CACHED = re.compile(rb'"cached_tokens"\s*:\s*(\d+)')
_ANSWERED = re.compile(rb'"completion_tokens"\s*:\s*(\d+)')
_PROMPT = re.compile(rb'"prompt_tokens"\s*:\s*(\d+)')


class Outcome(msgspec.Struct):
    """One request. `late`: seconds that it was sent after its time. `error`: "" or what went wrong.

    `worker` is who answered, as far as the answer says so.
    """

    record: Record
    late: float
    error: str = ""
    worker: str = ""


async def send(client: Upstream, ask: Ask, body: bytes, due: float) -> Outcome:
    """Send a request that was `due` on the monotonic clock, and read its answer to the end."""
    began = monotonic()
    outcome = Outcome(Record(ask.at, ask.tokens, ask.output), began - due)
    try:
        response = await _ask(client, ask, body)
        try:
            await _read(response, outcome, began)
        finally:
            response.close()
    except UpstreamTimeout:
        outcome.error = "timeout"
    except RouterError as error:
        outcome.error = error.message
    return outcome


async def _ask(client: Upstream, ask: Ask, body: bytes) -> Response:
    """Send it; once more on a new connection, when an idle one has been closed while it was on its way."""
    session = () if ask.session is None else ((_SESSION, b"%d" % ask.session),)
    headers = (*_HEADERS, *session)
    try:
        return await client.request(b"POST", TARGET, headers, body)
    except UpstreamFailed as failure:
        if not failure.stale:
            raise
        return await client.request(b"POST", TARGET, headers, body, fresh=True)


async def _read(response: Response, outcome: Outcome, began: float) -> None:
    record = outcome.record
    outcome.worker = dict(response.headers).get(b"x-kv-router-worker", b"").decode("latin-1")
    tail = b""
    while piece := await response.read():
        if record.ttft is None:
            record.ttft = monotonic() - began
        tail = (tail + piece)[-_TAIL_BYTES:]
    if response.status != _OK or _DONE not in tail:
        record.ttft = None
        outcome.error = "cut" if response.status == _OK else f"status {response.status}"
        return
    record.seconds = monotonic() - began
    record.prompt = _last(_PROMPT, tail, record.prompt)
    record.output = _last(_ANSWERED, tail, record.output)
    record.cached = _last(_CACHED, tail, 0)


def _last(pattern: re.Pattern[bytes], tail: bytes, default: int) -> int:
    found = pattern.findall(tail)
    return int(found[-1]) if found else default
