"""What it costs to tell others of one's load, and how soon they know.

`told`: one request entered, its first token and its end, in us; once as a router does that is alone, once as
one that tells others; the same for the prediction of a prompt of 64 blocks. `message`: what it takes to make
and to take in one, by the ranks in it. `seen`: from a request's entry in one process to the load in another,
over the sockets of `--processes` and over a Redis on this machine, in ms; a message is made 5 ms after the
first change that is in it.
"""

from __future__ import annotations

import asyncio
import time
from statistics import quantiles
from typing import TYPE_CHECKING

import uvloop

from router.core.accounts import own_accounts
from router.core.facts import Candidate
from router.core.index import Index
from router.core.peers import Peers
from router.core.rank import Rank
from router.core.said import decode
from router.core.telling import Telling
from router.core.view import View
from tests.core.test_peers import blocks
from tests.share.test_channel import two_routers
from tests.share.test_sharing import Process, connected

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core.accounts import Accounts

REQUESTS, ROUNDS, BLOCKS, SEEN = 20_000, 7, 64, 200
LOOK_SECONDS = 0.001


def ranks_of(count: int) -> dict[tuple[str, int], Rank]:
    """Return so many ranks, eight to a worker."""
    index = Index()
    return {
        (f"http://10.0.{at // 8}.1:30000", at % 8): Rank("", at % 8, View(index, "m", block_size=4))
        for at in range(count)
    }


def least(run: Callable[[], float]) -> float:
    """Return the least of some runs, in us."""
    return min(run() for _ in range(ROUNDS)) * 1e6


def told_accounts() -> Accounts:
    """Return the accounts of a process that tells others, which never ask."""
    return Telling("r", "a", lambda: None).accounts


def entered(make: Callable[[], Accounts]) -> float:
    """Return what a request takes in the ledger, in seconds."""
    accounts = make()
    (rank,) = ranks_of(1).values()
    began = time.process_time()
    for _ in range(REQUESTS):
        ticket = accounts.open(rank.load, 100)
        ticket.first_token()
        ticket.close()
    return (time.process_time() - began) / REQUESTS


def predicted(make: Callable[[], Accounts]) -> float:
    """Return what a prompt's prediction takes, in seconds."""
    accounts = make()
    (rank,) = ranks_of(1).values()
    prompts = [blocks(range(at * 1000, at * 1000 + BLOCKS * 4)) for at in range(REQUESTS // 100)]
    for prompt in prompts:
        prompt.keys(4, bigram=False)
    began = time.process_time()
    for prompt in prompts:
        accounts.predict(Candidate(rank, 0, 0, BLOCKS * 4), prompt, time.monotonic())
    return (time.process_time() - began) / len(prompts)


def messages(count: int) -> tuple[float, float, int]:
    """Return what it takes to make and to take in a message on so many ranks, in us, and its bytes."""
    here, there = ranks_of(count), ranks_of(count)
    telling, peers = Telling("r", "a", lambda: None), Peers(lambda worker, rank: there.get((worker, rank)))
    made: list[bytes] = []

    def make() -> float:
        for rank in here.values():
            telling.accounts.open(rank.load, 100)
        began = time.process_time()
        made[:] = telling.changes((name, rank) for (name, _), rank in here.items())
        return time.process_time() - began

    def take() -> float:
        make()
        began = time.process_time()
        for payload in made:
            peers.hear(decode(payload), time.monotonic(), same_clock=True)
        return time.process_time() - began

    return least(make), least(take), sum(map(len, made))


def main() -> None:
    """Print the tables."""
    print(f"{'us a request':>24} {'alone':>8} {'told':>8}")
    for what, measure in (("ledger", entered), (f"prediction, {BLOCKS} blocks", predicted)):
        # In turns, so that what else the machine does meets both.
        runs = [(measure(own_accounts), measure(told_accounts)) for _ in range(ROUNDS)]
        alone, told = (min(each) * 1e6 for each in zip(*runs, strict=True))
        print(f"{what:>24} {alone:>8.2f} {told:>8.2f}")
    print(f"\n{'ranks in a message':>24} {'make us':>8} {'take us':>8} {'bytes':>8}")
    for count in (1, 8, 64, 500):
        make, take, size = messages(count)
        print(f"{count:>24} {make:>8.1f} {take:>8.1f} {size:>8}")
    print(f"\n{'ms until seen by':>24} {'p50':>8} {'p99':>8}")
    for what, lags in (
        ("another process", uvloop.run(by_process())),
        ("another router", uvloop.run(by_router())),
    ):
        points = quantiles(lags, n=100)
        print(f"{what:>24} {points[49] * 1e3:>8.2f} {points[98] * 1e3:>8.2f}")


async def known(rank: Rank, requests: int) -> None:
    """Return once so many requests of peers are known of at a rank."""
    until = time.monotonic() + 10
    while rank.load.peer_requests != requests:
        assert time.monotonic() < until, "the other one is not heard"
        await asyncio.sleep(LOOK_SECONDS)


async def seen(accounts: Accounts, here: Rank, there: Rank) -> list[float]:
    """Return how long it takes until a request is known there, in seconds."""
    lags = []
    for _ in range(SEEN):
        began = time.perf_counter()
        ticket = accounts.open(here.load, 100)
        await known(there, 1)
        lags.append(time.perf_counter() - began)
        ticket.close()
        await known(there, 0)
    return lags


async def by_process() -> list[float]:
    """Tell another process of the router."""
    one, two = Process("1"), Process("2")
    with connected(one, two):
        return await seen(one.sharing.accounts, one.rank, two.rank)


async def by_router() -> list[float]:
    """Tell another router, over a Redis on this machine."""
    async with two_routers() as (_, one, two):
        return await seen(one.sharing.accounts, one.rank, two.rank)


if __name__ == "__main__":
    main()
