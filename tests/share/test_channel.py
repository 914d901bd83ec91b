"""Routers that tell each other of their load over a real Redis server, also while it comes and goes."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import redis.asyncio as redis

from router.core.index import Index
from router.core.rank import Rank
from router.core.view import View
from router.share.address import parse_address
from router.share.channel import Channel
from router.share.sharing import Sharing
from tests.share.server import RedisServer, redis_server
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.core.accounts import Entry

URL = "http://a:1"
PASSWORD = "not-to-be-shown"


class Router:
    """One router with one rank."""

    def __init__(self, name: str, url: str, channel: str = "kv-router") -> None:
        self.rank = Rank(URL, 0, View(Index(), "m", block_size=4))
        self.sharing = Sharing(lambda: [self.rank], name, f"{name}-0")
        self.channel = Channel(
            parse_address(url), channel, lambda payload: self.sharing.hear(payload, same_clock=False)
        )
        self.sharing.ways.append(self.channel.send)

    @property
    def others(self) -> tuple[int, int]:
        return self.rank.load.peer_tokens, self.rank.load.peer_requests

    def open(self, tokens: int = 100) -> Entry:
        return self.sharing.accounts.open(self.rank.load, tokens)

    async def close(self) -> None:
        self.sharing.close()
        await self.channel.close()


@asynccontextmanager
async def running(*routers: Router) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for each in routers:
            each.channel.start()
            each.sharing.start()
            stack.push_async_callback(each.close)
        yield


@asynccontextmanager
async def two_routers(*options: str) -> AsyncIterator[tuple[RedisServer, Router, Router]]:
    async with redis_server(*options) as server:
        one, two = Router("one", server.url), Router("two", server.url)
        async with running(one, two):
            await until(lambda: one.channel.connected and two.channel.connected, "both to be connected")
            yield server, one, two


async def test_each_sees_what_the_other_has_sent_and_no_more_when_it_leaves() -> None:
    async with two_routers() as (_, one, two):
        tickets = [one.open(100), two.open(7)]
        await until(lambda: (one.others, two.others) == ((7, 1), (100, 1)), "the load of the other")
        assert (one.rank.load.inflight_tokens, one.rank.load.own_tokens) == (107, 100)
        tickets[0].first_token()
        await until(lambda: two.others == (0, 1), "the first token")
        await two.close()
        await until(lambda: one.others == (0, 0), "two to be gone")
        assert one.sharing.peers.routers() == set()


async def test_a_server_that_dies_is_done_without_and_found_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "router")
    async with two_routers() as (server, one, two):
        two.open(100)
        await until(lambda: one.others == (100, 1), "the load")
        await server.kill()
        await until(lambda: not one.channel.connected and one.others == (0, 0), "the loss")
        assert "ConnectionError" in one.channel.why
        assert one.open(5)  # nobody waits for a server
        await server.start()
        await until(lambda: one.others == (100, 1) and two.others == (5, 1), "both to be heard again")
        assert one.channel.why == ""
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "connected to" in line]) == 4
    assert len([line for line in said if "goes by its own load" in line]) <= 4


async def test_a_server_that_hangs_is_given_up_and_found_again() -> None:
    async with two_routers() as (server, one, two):
        server.stand_still(still=True)
        await until(lambda: not one.channel.connected and not two.channel.connected, "the loss")
        two.open(100)
        server.stand_still(still=False)
        await until(lambda: one.others == (100, 1), "the load")


async def test_other_channels_and_bytes_that_are_no_message_are_not_heard() -> None:
    async with two_routers() as (server, one, two):
        stranger = Router("stranger", server.url, "another")
        async with running(stranger), redis.Redis(port=server.port) as client:
            await until(lambda: stranger.channel.connected)
            stranger.open(1000)
            for payload in (b"", b"\x00", b"x" * 300_000):
                await client.publish("kv-router", payload)
            two.open(100)
            await until(lambda: one.others == (100, 1), "the load")
            await until(lambda: stranger.channel.traffic.sent > 0)
            assert one.sharing.undecodable == two.sharing.undecodable == 3
            assert one.sharing.peers.routers() == {"two"}
            assert stranger.others == (0, 0)


async def test_a_password_opens_the_server_and_is_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with redis_server("--requirepass", PASSWORD) as server:
        place = f"127.0.0.1:{server.port}"
        right = Router("right", f"redis://:{PASSWORD}@{place}/3")
        wrong = Router("wrong", f"valkey://:{PASSWORD}x@{place}")
        async with running(right, wrong):
            await until(lambda: right.channel.connected, "the right one to be let in")
            await until(lambda: wrong.channel.why.startswith(place), "the other one to be refused")
            assert PASSWORD not in repr(wrong.channel.why)
    assert PASSWORD not in caplog.text
    assert PASSWORD not in repr(parse_address(f"redis://:{PASSWORD}@{place}"))


@pytest.mark.parametrize(
    ("url", "shown", "secure", "password"),
    [
        ("redis://host", "host:6379", False, None),
        ("rediss://user:p%40ss@host:7000/2", "host:7000", True, "p@ss"),
        ("valkey://:pass@10.0.0.1", "10.0.0.1:6379", False, "pass"),
        ("valkeys://[::1]:1", "[::1]:1", True, None),
    ],
)
def test_addresses_are_read(url: str, shown: str, secure: bool, password: str | None) -> None:
    address = parse_address(url)
    assert (str(address), address.secure, address.password) == (shown, secure, password)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host",
        "http://host",
        "redis://",
        "redis://host:0",
        "redis://host:99999",
        "redis://a b",
        "redis://h/x",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        parse_address(url)
