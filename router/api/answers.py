"""Answers that the router gives itself on the raw ASGI path."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.errors import RouterError
    from router.proxy.cycle import Cycle
    from router.proxy.headers import Field


def error_headers(error: RouterError) -> list[Field]:
    """Return the headers of an error's answer."""
    headers = [(b"content-type", b"application/json")]
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    return headers


def send_error(cycle: Cycle, error: RouterError, request_id: bytes) -> None:
    """Answer with an OpenAI-style error object."""
    body = error.body()
    headers = [*error_headers(error), (b"content-length", b"%d" % len(body)), (b"x-request-id", request_id)]
    cycle.begin(error.status, headers, body, more=False)
