"""A client that costs little, for many requests at a time: one connection and one whole answer each."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2


@dataclass(slots=True)
class Got:
    """A whole answer; status 0: the connection ended before one had begun."""

    status: int
    head: bytes
    body: bytes

    @property
    def whole(self) -> bool:
        """Whether it is a good answer that has come to its end."""
        return self.status == 200 and (b"[DONE]" in self.body[-32:] or b'"usage"' in self.body)

    @property
    def told(self) -> bool:
        """Whether it is an event stream that was cut, and says so in its last event."""
        return self.status == 200 and b'"upstream_error"' in self.body.rstrip().rpartition(b"data: ")[2]


async def ask(url: str, on_body: Callable[[], None] | None = None, **fields: Any) -> Got:
    """Send one completion; `on_body` is called when the first of its body has come."""
    parts = urlsplit(url)
    body = json.dumps({"model": "stand-in", "prompt": [1], "max_tokens": 2, "stream": True} | fields).encode()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    with contextlib.closing(writer):
        head = b"POST /v1/completions HTTP/1.1\r\nhost: r\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        try:
            answer = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return Got(0, b"", b"")
        first = await reader.read(65536)
        if on_body is not None:
            on_body()
        return Got(int(answer.split(b" ", 2)[1]), answer.lower(), first + await reader.read())


class Load:
    """So many users, each asking one request after another until told to stop; `answers` are theirs."""

    def __init__(self, url: str, users: int, **fields: Any) -> None:
        self.answers: list[Got] = []
        self._url = url
        self._fields = fields
        self._stopped = False
        self._users = [asyncio.create_task(self._ask(user)) for user in range(users)]

    async def _ask(self, user: int) -> None:
        number = 0
        while not self._stopped:
            number += 1
            prompt = [(user * 31 + number * 7 + index) % 250 + 1 for index in range(40)]
            stream = {"stream": number % 2 == 0}
            self.answers.append(await ask(self._url, prompt=prompt, **stream | self._fields))

    async def goes_on(self, count: int) -> None:
        """Wait until there are more answers than that."""
        await until(lambda: len(self.answers) > count, "more answers")

    async def stop(self) -> list[Got]:
        """Let the requests under way end; return all answers."""
        self._stopped = True
        await asyncio.gather(*self._users)
        return self.answers


async def rows(client: httpx2.AsyncClient) -> dict[str, dict[str, Any]]:
    """Return what GET /workers says, by URL."""
    return {row["url"]: row for row in (await client.get("/workers")).json()["workers"]}


async def no_load(client: httpx2.AsyncClient) -> bool:
    """Whether the ledger is empty."""
    found = (await rows(client)).values()
    return all(row["inflight_requests"] == row["inflight_tokens"] == 0 for row in found)
