"""Running a request's coroutine without a Task for as long as it waits for nothing but a worker.

A Task costs a registration, a context and two more turns of the event loop per request: about 8 us beside the
30 that all the rest takes. A `Drive` steps the coroutine where the news arrives, in a connection's callback.
What it waits for must then be a `Waiter`; as soon as it waits for anything else (a thread, a timer, a slow
client's socket) the rest of it becomes a Task, once and for all. What only works in a Task (asyncio.timeout)
asks for one first: `in_task`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextvars import Context
    from types import TracebackType


class Waiter:
    """What one coroutine awaits and somebody else wakes, once; the rest is what a Task asks of a future."""

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_loop", "resume", "woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asyncio_future_blocking = False
        self._cancelled = False
        self.resume: Callable[[], object] | None = None
        self.woken = False

    def __await__(self) -> Generator[Waiter, None, None]:
        if not self.woken:
            self._asyncio_future_blocking = True
            yield self

    def wake(self) -> None:
        """Let the coroutine go on: at once if a `Drive` steps it, in the loop's next turn if a Task does."""
        if not self.woken:
            self.woken = True
            if self.resume is not None:
                self.resume()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that it belongs to."""
        return self._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context) -> None:
        """Have a Task told."""
        self.resume = partial(self._loop.call_soon, callback, self, context=context)
        if self.woken:
            self.resume()

    def result(self) -> None:
        """Raise CancelledError if the Task was cancelled meanwhile."""
        if self._cancelled:
            raise asyncio.CancelledError

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - the name is asyncio's
        """Wake a Task that is being cancelled."""
        if self.woken:
            return False
        self._cancelled = True
        self.wake()
        return True


class Drive:
    """One coroutine on its way. It stands in `running` from `start` to its end, as a Task would.

    What it raises comes out wherever it was stepped. `interrupt` is for whoever watches the client, `cancel`
    for the server.
    """

    __slots__ = ("_coroutine", "_loop", "_running", "_waiter", "task")

    def __init__(
        self, coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, running: set[Any]
    ) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._running = running
        self._waiter: Waiter | None = None
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run to the first thing that it has to wait for."""
        self._running.add(self)
        self._step()

    def interrupt(self, error: BaseException) -> None:
        """Raise an error where the coroutine waits; in a Task that is a cancellation."""
        waiter, self._waiter = self._waiter, None
        if self.task is not None:
            self.task.cancel()
        elif waiter is not None:
            waiter.resume = None
            self._step(error)

    def cancel(self, msg: object = None) -> None:
        """Cancel it in the loop's next turn."""
        if self.task is not None:
            self.task.cancel(msg)
        else:
            self._loop.call_soon(self.interrupt, asyncio.CancelledError(msg))

    def _step(self, error: BaseException | None = None) -> None:
        self._waiter = None
        try:
            waited = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
        except StopIteration:
            self._running.discard(self)
        except BaseException:
            self._running.discard(self)
            raise
        else:
            self._wait_for(waited)

    def _wait_for(self, waited: object) -> None:
        if type(waited) is Waiter:
            self._waiter = waited
            waited.resume = self._step
        else:
            self.task = self._loop.create_task(_Rest(self._coroutine, waited))
            self.task.add_done_callback(lambda _: self._running.discard(self))


class _Rest(Coroutine[Any, Any, None]):
    """A coroutine that has been stepped already, as a Task wants it: what it waits for comes first."""

    __slots__ = ("_coroutine", "_first", "_waited")

    def __init__(self, coroutine: Coroutine[Any, Any, None], waited: object) -> None:
        self._coroutine = coroutine
        self._waited = waited
        self._first = True

    def __await__(self) -> Generator[Any, Any, None]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Step it."""
        if self._first:
            self._first = False
            return self._waited
        return self._coroutine.send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
    ) -> Any:
        """Raise an error in it."""
        self._first = False
        error = value if isinstance(value, BaseException) else kind
        return self._coroutine.throw(error if trace is None else error.with_traceback(trace))

    def close(self) -> None:
        """End it."""
        self._coroutine.close()


async def in_task() -> None:
    """Go on in a Task; costs a turn of the loop where there is none yet."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)
