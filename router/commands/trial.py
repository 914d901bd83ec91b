"""One rank put to the test: what it publishes when it is given a prompt, and whether it can say it again.

The prompt is of random token ids, so that no cache holds it, and the same one is sent twice: the events of
the first show blocks, tokens and clocks, the answer of the second what the engine reports as cached.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import zmq

from router.core.blocks import pack_tokens
from router.core.events import Batch, Stored
from router.core.wire import WireError, decode_batch
from router.errors import UpstreamFailed
from router.proxy.fetch import fetch
from router.streams.reader import Frames, Reader, batch_in
from router.streams.replay import Replay
from router.streams.sockets import dealer, subscriber

if TYPE_CHECKING:
    from router.engines.description import EventSource
    from router.proxy.headers import Field
    from router.proxy.upstream import Upstream
    from router.streams.turns import Turns

_BLOCKS = 3
_MOST_TOKENS = 4096
# Ids that every vocabulary has; the special ones, where they come first, are below.
_IDS = (10, 250)
_OK = 200


@dataclass(slots=True)
class Heard:
    """What a rank has published: batches with their number, and how far our clock is ahead, in seconds.

    `undecodable` batches and events; `why` the last batch was one, "" for none.
    """

    linked: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    batches: list[tuple[int, Batch, float]] = field(default_factory=list)
    undecodable: int = 0
    why: str = ""


class Listener:
    """Subscribes to one rank. Raises zmq.ZMQError for an address that cannot be used; must be closed."""

    def __init__(
        self, zmq_context: zmq.Context[zmq.Socket[bytes]], source: EventSource, turns: Turns
    ) -> None:
        self.heard = Heard()
        socket, monitor = subscriber(zmq_context, source.endpoint, source.topic, bind=source.bind)
        self._readers = (
            Reader(socket, self._on_batch, turns=turns),
            Reader(monitor, self._on_link, turns=turns),
        )

    def close(self) -> None:
        """Hear no more."""
        for reader in self._readers:
            reader.close()

    def _on_link(self, frames: Frames) -> None:
        if int.from_bytes(frames[0][:2], "little") == zmq.Event.HANDSHAKE_SUCCEEDED:
            self.heard.linked.set()

    def _on_batch(self, frames: Frames) -> None:
        heard = self.heard
        try:
            number, batch = _read(frames)
        except WireError as error:
            heard.undecodable += 1
            heard.why = str(error)
        else:
            heard.undecodable += batch.undecodable
            heard.batches.append((number, batch, time.time() - batch.ts))
        heard.news.set()


def _read(frames: Frames) -> tuple[int, Batch]:
    """Return a message's number and batch. Raises WireError."""
    found = batch_in(frames)
    if not found:
        raise WireError(f"a message of {len(frames)} frames, not topic, number and payload")
    return int.from_bytes(found[1], "big"), decode_batch(found[2])


@dataclass(frozen=True, slots=True)
class Sent:
    """A prompt that was answered twice: its ids, and the usage of both answers."""

    ids: list[int]
    usages: tuple[dict[str, Any], dict[str, Any]]


async def send_twice(
    upstream: Upstream, model: str, headers: list[Field], block_size: int | None, seconds: float
) -> Sent:
    """Have a new prompt of a few blocks answered twice. Raises UpstreamFailed, also for a refusal."""
    count = min(_BLOCKS * (block_size or 16) + 1, _MOST_TOKENS)
    ids = [Random().randrange(*_IDS) for _ in range(count)]
    body = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0}
    first = await complete(upstream, "/v1/completions", headers, body, seconds)
    return Sent(ids, (first, await complete(upstream, "/v1/completions", headers, body, seconds)))


async def complete(
    upstream: Upstream, path: str, headers: list[Field], body: dict[str, object], seconds: float
) -> dict[str, Any]:
    """Return the usage of an answer, {} where it has none. Raises UpstreamFailed, also for a refusal."""
    reply = await fetch(upstream, "POST", path, headers=headers, json=body, timeout=seconds)
    if reply.status != _OK:
        said = reply.body[:160].decode(errors="replace")
        raise UpstreamFailed(f"POST {path} answers {reply.status}: {said}")
    answer = reply.json()
    usage = answer.get("usage") if isinstance(answer, dict) else None
    return usage if isinstance(usage, dict) else {}


async def stored(heard: Heard, ids: list[int], seconds: float) -> Stored | None:
    """Return the event of the first of a prompt's blocks; None if there is none in time."""
    wanted = pack_tokens(ids)
    try:
        async with asyncio.timeout(seconds):
            while (found := _find(heard, wanted)) is None:
                heard.news.clear()
                await heard.news.wait()
    except TimeoutError:
        return None
    return found


def _find(heard: Heard, wanted: bytes) -> Stored | None:
    for _, batch, _ in heard.batches:
        for event in batch.events:
            if (
                isinstance(event, Stored)
                and event.tokens
                and wanted.startswith(event.tokens[: 4 * event.block_size])
            ):
                return event
    return None


async def replayed(
    zmq_context: zmq.Context[zmq.Socket[bytes]], endpoint: str, start: int, turns: Turns, seconds: float
) -> tuple[int | None, str]:
    """Ask for a history from `start` on: the first number that came, None for none, and what was wrong."""
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    numbers: list[int] = []
    try:
        replay = Replay(
            dealer(zmq_context, endpoint),
            start,
            limit_seconds=seconds,
            turns=turns,
            on_batch=lambda seq, _payload, _topic: numbers.append(seq),
            on_end=ended.set_result,
        )
    except zmq.ZMQError as error:
        return None, f"{endpoint}: {error.strerror}"
    try:
        failure = await ended
    finally:
        replay.close()
    return (numbers[0] if numbers else None), failure
