"""Messages between routers, over a channel of a Redis or Valkey server (`--share`).

Whoever is connected hears everybody on the channel, also itself, which tells that the connection is well.
While there is none, messages are dropped: what is told is told again. No request waits for anything here.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from router.share.sharing import ROUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio.client import PubSub

    from router.share.address import Address

# In seconds. Everybody tells something in each round; after six without a word the connection is given up.
_ANSWER, _SILENCE = 2.0, 6 * ROUND_SECONDS
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_FAREWELL = 1.0
_MOST_WAITING = 256
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Traffic:
    """What has gone over a channel so far, and what was `dropped`; own messages are not heard again."""

    sent: int = 0
    sent_bytes: int = 0
    heard: int = 0
    heard_bytes: int = 0
    dropped: int = 0


class Channel:
    """`on_message` takes each message, and says whether it was another router's.

    `why`: what is wrong, "" when it is connected.
    """

    def __init__(self, address: Address, name: str, on_message: Callable[[bytes], bool]) -> None:
        self.name = name
        self.why = "not connected yet"
        self.traffic = Traffic()
        self._address = address
        self._on_message = on_message
        self._waiting: deque[bytes] = deque(maxlen=_MOST_WAITING)
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """Whether messages come and go."""
        return not self.why

    def start(self) -> None:
        """Begin to connect; needs a running loop."""
        self._task = asyncio.ensure_future(self._run())

    def send(self, payload: bytes) -> None:
        """Send a message as soon as may be; one that cannot go now is dropped. About 0.2 us here."""
        if self.why or len(self._waiting) == _MOST_WAITING:
            self.traffic.dropped += 1
            return
        self._waiting.append(payload)
        self._idle.clear()
        self._news.set()

    async def close(self) -> None:
        """Send what waits, if that is done at once, and leave."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL if self._waiting and self.connected else 0):
                await self._idle.wait()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Connect, again and again."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._connected()
            except Exception as error:  # noqa: BLE001 - whatever a server does, the router serves and tries again
                pause = _FIRST_PAUSE if self.connected else min(2 * pause, _LONGEST_PAUSE)
                self._is_down(error)
            self._waiting.clear()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    def _is_down(self, error: Exception) -> None:
        # What a server says may hold what it was told: only the kind is shown.
        why = f"{self._address}: {type(error).__name__}"
        if self.connected or why != self.why:
            _log.warning("share: %s; this router goes by its own load and what engines say", why)
        self.why = why

    async def _connected(self) -> None:
        """Be connected until something fails, which is raised."""
        address = self._address
        client = redis.Redis(
            host=address.host,
            port=address.port,
            username=address.user,
            password=address.password,
            ssl=address.secure,
            socket_timeout=_ANSWER,
            socket_connect_timeout=_ANSWER,
            retry=Retry(NoBackoff(), 0),
        )
        heard = client.pubsub(ignore_subscribe_messages=True)
        try:
            await heard.subscribe(self.name)
            await client.ping()
            self.why = ""
            _log.info("share: connected to %s, channel %s", address, self.name)
            await self._both(client, heard)
        finally:
            with suppress(RedisError, OSError, TimeoutError):
                await client.aclose()

    async def _both(self, client: redis.Redis, heard: PubSub) -> None:
        """Send and hear until one of them fails."""
        tasks = [asyncio.ensure_future(each) for each in (self._send(client), self._hear(heard))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await done.pop()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, client: redis.Redis) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                payload = self._waiting[0]
                await client.publish(self.name, payload)
                self._waiting.popleft()
                self.traffic.sent += 1
                self.traffic.sent_bytes += len(payload)
            self._idle.set()

    async def _hear(self, heard: PubSub) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _SILENCE
        while True:
            message = await heard.get_message(timeout=_SILENCE)
            if message is not None:
                until = loop.time() + _SILENCE
                self._take(message["data"])
            elif loop.time() > until:
                raise TimeoutError

    def _take(self, payload: bytes) -> None:
        if self._on_message(payload):
            self.traffic.heard += 1
            self.traffic.heard_bytes += len(payload)
