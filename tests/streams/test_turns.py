"""Streams share the loop's turns."""

from __future__ import annotations

import asyncio
from functools import partial

from router.streams.turns import Turns
from tests.waiting import until


async def test_those_who_wait_go_in_the_order_of_asking_and_the_loop_turns_in_between() -> None:
    turns = Turns(0.0)
    log: list[str] = []

    def work(name: str) -> None:
        log.append(name)
        if log.count(name) < 3:
            turns.later(partial(work, name))

    def tick() -> None:
        log.append(".")
        if len(log) < 100:
            asyncio.get_running_loop().call_soon(tick)

    for name in "abc":
        turns.later(partial(work, name))
    tick()
    await until(lambda: log.count("c") == 3)
    assert [name for name in log if name != "."] == [*"abc"] * 3
    assert "ab" not in "".join(log)


async def test_a_turn_is_over_for_all_when_its_time_is_and_while_others_wait() -> None:
    turns = Turns(3600.0)
    assert not turns.is_over()
    called: list[int] = []
    turns.later(lambda: called.append(1))
    assert turns.is_over()
    await until(lambda: called == [1])
    assert not turns.is_over()
    assert Turns(-1.0).is_over()
