from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.proxy.drive import Drive, Waiter, in_task
from tests.waiting import until


class Run:
    """A coroutine that awaits what it is given, one after the other, in a drive."""

    def __init__(self, *waits: Any) -> None:
        self.running: set[Any] = set()
        self.seen: list[Any] = []
        self.in_task: list[bool] = []
        self.drive = Drive(self._run(waits), asyncio.get_running_loop(), self.running)

    async def _run(self, waits: tuple[Any, ...]) -> None:
        for wait in waits:
            try:
                self.seen.append(await wait)
            except (OSError, asyncio.CancelledError) as error:
                self.seen.append(error)
            self.in_task.append(asyncio.current_task() is not None and self.drive.task is not None)


def waiter() -> Waiter:
    return Waiter(asyncio.get_running_loop())


async def test_what_waits_for_waiters_alone_goes_on_within_the_wake() -> None:
    first, second = waiter(), waiter()
    run = Run(first, second)
    run.drive.start()
    assert run.running == {run.drive}
    first.wake()
    assert run.seen == [None]
    second.wake()
    assert run.seen == [None, None]
    assert run.drive.task is None
    assert not run.running


async def test_a_waiter_woken_before_is_not_waited_for() -> None:
    done = waiter()
    done.wake()
    done.wake()
    run = Run(done)
    run.drive.start()
    assert run.seen == [None]
    assert not run.running


async def test_anything_else_makes_a_task_of_the_rest() -> None:
    future = asyncio.get_running_loop().create_future()
    after = waiter()
    run = Run(future, after, in_task())
    run.drive.start()
    assert run.drive.task is not None
    future.set_result(7)
    await until(lambda: run.seen == [7])
    assert run.running == {run.drive}
    after.wake()
    await until(lambda: not run.running)
    assert run.seen == [7, None, None]
    assert all(run.in_task)


async def test_who_needs_a_task_gets_one() -> None:
    async def timed() -> str:
        await in_task()
        async with asyncio.timeout(10):
            await asyncio.sleep(0)
        return "in time"

    run = Run(timed())
    run.drive.start()
    await until(lambda: not run.running)
    assert run.seen == ["in time"]


async def test_a_future_that_fails_raises_where_it_is_awaited() -> None:
    future = asyncio.get_running_loop().create_future()
    run = Run(future)
    run.drive.start()
    future.set_exception(OSError("gone"))
    await until(lambda: not run.running)
    assert str(run.seen[0]) == "gone"


async def test_an_interruption_raises_where_it_waits_and_a_later_wake_does_nothing() -> None:
    first, second = waiter(), waiter()
    run = Run(first, second)
    run.drive.start()
    run.drive.interrupt(OSError("left"))
    assert str(run.seen[0]) == "left"
    first.wake()
    assert len(run.seen) == 1
    second.wake()
    assert not run.running


@pytest.mark.parametrize("task", [False, True])
async def test_a_cancellation_comes_in_a_turn_of_its_own(*, task: bool) -> None:
    wait = asyncio.get_running_loop().create_future() if task else waiter()
    run = Run(wait)
    run.drive.start()
    run.drive.cancel("stopping")
    assert not run.seen
    await until(lambda: not run.running)
    assert isinstance(run.seen[0], asyncio.CancelledError)


async def test_a_task_awaits_a_waiter_as_it_does_a_future() -> None:
    async def wait(for_it: Waiter) -> str:
        await for_it
        return "woken"

    first, second = waiter(), waiter()
    task, cancelled = asyncio.create_task(wait(first)), asyncio.create_task(wait(second))
    await asyncio.sleep(0)
    first.wake()
    cancelled.cancel()
    assert await task == "woken"
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert not second.cancel()
