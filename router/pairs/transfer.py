"""vLLM with NIXL and alike: the prefill worker first, then the decode worker with what the first one said.

Facts (KV_EVENTS.md 9; vLLM 0.32): the prefill worker is asked for one token, not as a stream, with
`kv_transfer_params` that announce a remote decode; the `kv_transfer_params` of its answer tell the decode
worker where the KV is kept and under which name. It is kept there until it has been fetched or a time limit
is over (480 s by default): a decode worker that fails leaves it to that. Both get the same X-Request-Id.

The prefill answer's usage tells what was cached at the prefill worker. The decode worker counts what it
fetched as cached too, which says nothing of its own cache.

An answer names one transfer, so a body with several prompts or answers cannot be handed over; one that must
not read the cache (logprobs of the prompt) gains nothing from it. A decode worker computes those itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from router.errors import UpstreamFailed
from router.pairs.body import with_fields
from router.pairs.half import HalfFailed

if TYPE_CHECKING:
    from router.pairs.half import Half
    from router.pairs.job import Job
    from router.proxy.relay import Relayed

_NULL = b"null"
_PARAMS = "kv_transfer_params"
_ASKED = msgspec.json.encode(
    {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
)


class Told(msgspec.Struct):
    """What is read of a prefill worker's answer."""

    kv_transfer_params: msgspec.Raw = msgspec.Raw(_NULL)
    usage: msgspec.Raw = msgspec.Raw(_NULL)


_TOLD = msgspec.json.Decoder(Told)


async def serve(prefill: Half, decode: Half, job: Job) -> Relayed:
    """Have a request answered by a pair. Raises HalfFailed.

    When it returns or raises, nothing of the request runs on either worker.
    """
    told = _read(prefill, await prefill.whole(prefill_body(job.body), own=True))
    job.prefilled(bytes(told.usage))
    response = await decode.ask(decode_body(job.body, bytes(told.kv_transfer_params)))
    try:
        return await job.pass_on(response)
    except UpstreamFailed as failure:
        raise HalfFailed(decode, failure) from failure


def prefill_body(body: bytes) -> bytes:
    """Return the request for one token; what asks for more tokens, or for a stream, goes."""
    return with_fields(
        body,
        {"max_tokens": b"1", "stream": b"false", _PARAMS: _ASKED},
        instead={"max_completion_tokens": b"1"},
        without=("stream_options", "min_tokens"),
    )


def decode_body(body: bytes, params: bytes) -> bytes:
    """Return the request for the answer; without `params` the decode worker computes the prompt itself."""
    if params == _NULL:
        return with_fields(body, {}, without=(_PARAMS,))
    return with_fields(body, {_PARAMS: params})


def _read(half: Half, body: bytes) -> Told:
    try:
        return _TOLD.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HalfFailed(half, UpstreamFailed("the prefill worker's answer is not a JSON object")) from error
