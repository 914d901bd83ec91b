"""What a worker's answer says of the worker, when it is not a plain 200.

429 and 503 say that it takes no more now and has done nothing: another worker may, and this one counts as
loaded for as long as its Retry-After says. While all of them count as loaded, a request is sent to one of
them and once: the load is not multiplied, and a worker that has room again before the time it has named gets
work. When none takes a request, the client gets such an answer, unchanged.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from router.api.answers import send_answer
from router.core.breaker import Failure
from router.errors import UpstreamFailed, UpstreamTimeout
from router.pairs.half import REFUSALS, Answer
from router.proxy.drive import in_task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.api.exchange import Exchange
    from router.fleet.worker import Worker
    from router.proxy.headers import Field
    from router.proxy.response import Response

# A refusal is a line of text; it is there at once or worth nothing.
_MOST_BYTES, _SECONDS = 2**20, 2.0


class Refused(UpstreamFailed):
    """A worker has said that it takes no more now: another may. `answer` is what it said."""

    sent = False

    def __init__(self, answer: Answer, extra: Iterable[Field]) -> None:
        super().__init__(f"the worker answers {answer.status}: it takes no more now")
        self.answer = answer
        self._extra = extra

    def pass_on(self, exchange: Exchange) -> None:
        """Let the client have it, unchanged. Raises UpstreamFailed, with nothing sent, if that cannot be."""
        exchange.status = self.answer.status
        send_answer(exchange.cycle, self.answer, self._extra)


async def weigh(worker: Worker, response: Response, extra: Iterable[Field], trial: int) -> bool:
    """Take note of an answer that is not a 200; say whether it speaks for its worker.

    `extra` are the headers it would go on with, `trial` what the worker's breaker had said when it began.
    Raises Refused, with the answer read and closed.
    """
    status, health = response.status, worker.health
    failing = status in health.rules.statuses
    if failing:
        health.failed(Failure.STATUS, f"it answers {status}", trial)
    if status in REFUSALS:
        health.refused(retry_after(response.headers))
        raise Refused(await _whole(response), extra)
    return not failing


def retry_after(headers: Iterable[Field]) -> float | None:
    """Return for how many seconds an answer asks to be left alone (RFC 9110, 10.2.3), None if it does not."""
    value = next((value for name, value in headers if name == b"retry-after"), b"").strip()
    if re.fullmatch(rb"[0-9]{1,9}", value):
        return float(value)
    try:
        until = parsedate_to_datetime(value.decode("latin-1"))
        until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        return None


async def _whole(response: Response) -> Answer:
    try:
        await in_task()
        async with asyncio.timeout(_SECONDS):
            body = await response.read_all(_MOST_BYTES)
    except TimeoutError as error:
        raise UpstreamTimeout("the worker's refusal did not come to an end in time") from error
    finally:
        response.close()
    return Answer(response.status, response.status, response.headers, body)
