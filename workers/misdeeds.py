"""What a plan of faults has happen once, each in a task of its own; a failed one says so at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Deed: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_ANSWER_SECONDS = 0.02  # the answer to the one who asked for a fault leaves before it happens


class Deeds:
    """The deeds under way."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def do(self, deed: Deed, *, after: float = _ANSWER_SECONDS) -> asyncio.Task[None]:
        """Begin a deed in `after` seconds; the task may be cancelled."""
        task = asyncio.create_task(_in_a_moment(deed, after))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        report(task, "a fault could not be made")

    async def close(self) -> None:
        """Give up all that has not ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _in_a_moment(deed: Deed, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await deed()


def report(task: asyncio.Task[None], message: str) -> None:
    """Tell the loop's exception handler of a task that has failed: nobody waits for it."""
    if not task.cancelled() and (problem := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": message, "exception": problem})
