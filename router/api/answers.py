"""Answers that the router gives itself on the raw ASGI path, and what it adds to those of workers."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from starlette.responses import Response

from router.api.exchange import REQUEST_ID
from router.errors import NotAllowed, WrongMethod
from router.proxy.headers import answer_headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.core.facts import Candidate
    from router.errors import RouterError
    from router.pairs.half import Answer
    from router.proxy.cycle import Cycle
    from router.proxy.headers import Field


def error_headers(error: RouterError) -> list[Field]:
    """Return the headers of an error's answer."""
    headers = [(b"content-type", b"application/json")]
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    if isinstance(error, NotAllowed):
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, WrongMethod):
        headers.append((b"allow", error.allow.encode()))
    return headers


def error_answer(error: RouterError) -> Response:
    """Return the answer with an OpenAI-style error object on the ASGI side."""
    headers = {name.decode(): value.decode() for name, value in error_headers(error)}
    return Response(error.body(), status_code=error.status, headers=headers)


def send_error(cycle: Cycle, error: RouterError, request_id: bytes) -> None:
    """Answer with an OpenAI-style error object."""
    body = error.body()
    headers = [*error_headers(error), (b"content-length", b"%d" % len(body)), (b"x-request-id", request_id)]
    cycle.begin(error.status, headers, body, more=False)


def send_answer(cycle: Cycle, answer: Answer, extra: Iterable[Field]) -> None:
    """Pass a worker's whole answer on; raises UpstreamFailed, with nothing sent, for one that cannot be."""
    cycle.begin(answer.status, answer_headers(answer.headers, extra), answer.body, more=False)


def routed(candidate: Candidate, request_id: bytes) -> tuple[Field, ...]:
    """Return the headers that say where a request went, and what was expected to be cached there."""
    rank = candidate.rank
    overlap = b"x-kv-router-overlap-tokens", b"%d" % candidate.overlap_tokens
    return (*_names(rank.worker, rank.rank), overlap, (REQUEST_ID, request_id))


@lru_cache(maxsize=4096)
def _names(worker: str, rank: int) -> tuple[Field, Field]:
    return (b"x-kv-router-worker", worker.encode()), (b"x-kv-router-rank", b"%d" % rank)


@lru_cache(maxsize=4096)
def decode_names(worker: str, rank: int) -> tuple[Field, Field]:
    """Return the headers that say where the answer of a pair came from."""
    return (b"x-kv-router-decode-worker", worker.encode()), (b"x-kv-router-decode-rank", b"%d" % rank)
