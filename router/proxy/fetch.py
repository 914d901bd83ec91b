"""Small questions to a worker (probes, discovery): one call, one whole answer, one time limit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from router.errors import UpstreamFailed, UpstreamTimeout
from router.proxy.drive import in_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.proxy.headers import Field
    from router.proxy.response import Response
    from router.proxy.upstream import Upstream

# A /metrics page of a large engine has some hundred KiB.
REPLY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer, of any status."""

    status: int
    headers: list[Field]
    body: bytes

    def json(self) -> Any:
        """Return the decoded body; raises UpstreamFailed when it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamFailed("the worker's answer is not JSON") from error


async def fetch(
    upstream: Upstream,
    method: str,
    path: str,
    *,
    headers: Sequence[Field] = (),
    json: Any = None,
    timeout: float,  # noqa: ASYNC109 - callers give a limit of their own for every question
) -> Reply:
    """Ask and read the whole answer within `timeout` seconds, connecting included.

    `json`, unless None, is sent as the body. Redirects are not followed. Raises UpstreamFailed,
    UpstreamTimeout.
    """
    fields, body = list(headers), b""
    if json is not None:
        fields.append((b"content-type", b"application/json"))
        body = msgspec.json.encode(json)
    await in_task()
    try:
        async with asyncio.timeout(timeout):
            response = await _ask(upstream, method.encode(), path.encode(), fields, body)
            try:
                return Reply(response.status, response.headers, await response.read_all(REPLY_BYTES))
            finally:
                response.close()
    except TimeoutError as error:
        raise UpstreamTimeout(f"the worker did not answer {path} within {timeout:g} s") from error


async def _ask(
    upstream: Upstream, method: bytes, target: bytes, headers: Sequence[Field], body: bytes
) -> Response:
    """Send a request, once more when the worker had closed the idle connection it was written to."""
    try:
        return await upstream.request(method, target, headers, body)
    except UpstreamFailed as failure:
        if not failure.stale:
            raise
    return await upstream.request(method, target, headers, body, fresh=True)
