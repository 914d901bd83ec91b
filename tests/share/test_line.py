"""Calls over a line: answered, failed, ended."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from router.share.line import CallFailed, Line, LineClosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.share.line import Answer


async def nothing(_: str, __: msgspec.Raw) -> Any:
    return None


@asynccontextmanager
async def lines(answer: Answer) -> AsyncIterator[tuple[Line, Line]]:
    """Give both ends; the second one answers."""
    made = []
    for end, serve in zip(socket.socketpair(), (nothing, answer), strict=True):
        made.append(Line(*await asyncio.open_connection(sock=end), serve))
    tasks = [asyncio.create_task(line.run()) for line in made]
    yield made[0], made[1]
    for line in made:
        line.close()
    await asyncio.gather(*tasks)


async def test_a_call_is_answered_and_a_large_one_too() -> None:
    async def echo(what: str, body: msgspec.Raw) -> Any:
        return [what, body]

    async with lines(echo) as (line, _):
        for body in ({"a": [1, 2]}, "x" * 3_000_000):
            raw = await line.ask("echo", body, seconds=30)
            assert msgspec.msgpack.decode(raw) == ["echo", body]


async def test_calls_are_taken_up_in_their_order() -> None:
    seen: list[int] = []

    async def note(_: str, body: msgspec.Raw) -> Any:
        seen.append(msgspec.msgpack.decode(body))

    async with lines(note) as (line, _):
        await asyncio.gather(*(line.call("note", number) for number in range(100)))
    assert seen == list(range(100))


async def test_what_goes_wrong_there_is_told_here() -> None:
    async def fails(what: str, _: msgspec.Raw) -> Any:
        raise ValueError(what)

    async with lines(fails) as (line, _):
        with pytest.raises(CallFailed):
            await line.ask("anything", seconds=30)
        with pytest.raises(CallFailed):
            await line.ask("more", seconds=30)


async def test_whoever_waits_is_told_of_the_end() -> None:
    called = asyncio.Event()

    async def never(_: str, __: msgspec.Raw) -> Any:
        called.set()
        await asyncio.Event().wait()

    async with lines(never) as (line, other):
        with pytest.raises(TimeoutError):
            await line.ask("anything", seconds=0.01)
        waiting = asyncio.ensure_future(line.call("anything"))
        await called.wait()
        other.close()
        with pytest.raises(LineClosed):
            await waiting
        with pytest.raises(LineClosed):
            await line.call("late")
