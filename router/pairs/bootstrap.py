"""SGLang: both halves get the same request at once and find each other through the prefill worker.

Facts (KV_EVENTS.md 9; SGLang 0.5.23): `bootstrap_host` and `bootstrap_port` are where the prefill worker's
bootstrap server listens, `bootstrap_room` is a number that no other request has; for several prompts, or
several answers to one, all three are lists. The decode worker asks there for the KV; a decode worker without
room for it asks later, so the prefill worker may wait for it. Either side failing fails the other, but only
after time limits of minutes: so the router ends it. While neither has said anything, a decode worker that is
too slow most likely waits for the prompt: that counts against the prefill worker, and the request goes to
others for both. The decode worker's usage tells what was cached at the
prefill worker, which sends that along with the KV.

Ranks: the body's `routed_dp_rank` pins each half's own, beside the header; `disagg_prefill_dp_rank` tells the
decode worker whom to ask. A prefill worker that follows the room has the rank `room % dp`, so the room is
chosen to agree.
"""

from __future__ import annotations

import asyncio
from random import getrandbits
from typing import TYPE_CHECKING

import msgspec

from router.errors import BadRequest, UpstreamFailed, UpstreamTimeout
from router.pairs.body import MOST_COPIES, with_fields
from router.pairs.half import Half, HalfFailed
from router.proxy.drive import in_task

if TYPE_CHECKING:
    from router.pairs.job import Job
    from router.proxy.relay import Relayed

_ROOM_BITS = 63
_encode = msgspec.json.encode


async def serve(prefill: Half, decode: Half, job: Job) -> Relayed:
    """Have a request answered by a pair. Raises HalfFailed, and BadRequest for more answers than it can have.

    When it returns or raises, nothing of the request runs on either worker.
    """
    prefill_body, decode_body = bodies(prefill, decode, job)
    await in_task()
    try:
        async with asyncio.TaskGroup() as halves:
            first = halves.create_task(_prefill(prefill, prefill_body, job))
            try:
                relayed = await _decode(decode, decode_body, job)
            except HalfFailed as failed:
                if first.done() or not _too_slow(failed):
                    raise
                raise HalfFailed(prefill, failed.failure, shared=True) from failed
            first.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from None
    return relayed


async def _prefill(half: Half, body: bytes, job: Job) -> None:
    """See the prefill half through; once the client has a first byte its end does not matter."""
    try:
        await half.whole(body)
    except HalfFailed as failed:
        if not job.answered:
            failed.shared = _too_slow(failed)
            raise
    job.prefilled()


async def _decode(half: Half, body: bytes, job: Job) -> Relayed:
    response = await half.ask(body)
    try:
        return await job.pass_on(response)
    except UpstreamFailed as failure:
        raise HalfFailed(half, failure) from failure


def _too_slow(failed: HalfFailed) -> bool:
    """Whether a worker that has the request has kept silent for too long."""
    return failed.answer is None and failed.failure.sent and isinstance(failed.failure, UpstreamTimeout)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what says most of why; a lost connection says more than an error that may come of it."""
    failures = [error for error in group.exceptions if isinstance(error, HalfFailed)]
    if not failures:
        return group.exceptions[0]
    return min(failures, key=lambda failed: (not failed.final, failed.answer is not None))


def bodies(prefill: Half, decode: Half, job: Job) -> tuple[bytes, bytes]:
    """Return what the prefill and the decode worker are sent."""
    fields = _meeting(prefill, job.prompts * job.copies, batch=job.prompts * job.copies > 1)
    pins = {name: _encode(rank) for name, rank in _ranks(prefill, "routed_dp_rank").items()}
    mine = _ranks(decode, "routed_dp_rank") | _ranks(prefill, "disagg_prefill_dp_rank")
    dropped = ("routed_dp_rank", "disagg_prefill_dp_rank")
    return (
        with_fields(job.body, fields | pins, without=dropped),
        with_fields(job.body, fields | {name: _encode(rank) for name, rank in mine.items()}, without=dropped),
    )


def _ranks(half: Half, name: str) -> dict[str, int]:
    return {name: half.rank.rank} if half.ranks > 1 else {}


def _meeting(prefill: Half, count: int, *, batch: bool) -> dict[str, bytes]:
    """Return the fields that say where the halves meet, lists of `count` for a batch."""
    if count > MOST_COPIES:
        raise BadRequest(f"n: expected at most {MOST_COPIES} answers in all, got {count}", param="n")
    host, port = prefill.bootstrap
    where = {"bootstrap_host": f"[{host}]" if ":" in host else host, "bootstrap_port": port}
    rooms = [_room(prefill.rank.rank, prefill.ranks) for _ in range(count)]
    fields = {name: _encode([value] * count if batch else value) for name, value in where.items()}
    return fields | {"bootstrap_room": _encode(rooms if batch else rooms[0])}


def _room(rank: int, ranks: int) -> int:
    """Return a random number of 63 bits that is `rank` modulo `ranks`."""
    room = getrandbits(_ROOM_BITS)
    room += rank - room % ranks
    return room if room < 1 << _ROOM_BITS else room - ranks
