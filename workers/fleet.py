"""Several workers in one process, for tests, the demo and `python -m workers fleet`.

async with Fleet([WorkerSpec(), WorkerSpec(engine="vllm")]) as fleet:
fleet.workers[0].url
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from workers import bytelevel
from workers.ports import listen
from workers.tokenizer import Tokenizer
from workers.worker import Worker

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    from workers.spec import WorkerSpec


class Fleet:
    """Starts one worker per spec on entry, closes them on exit; raises OSError when a port is taken.

    Workers without a tokenizer of their own share a byte-level one, in a directory that lives as long.
    """

    def __init__(self, specs: Iterable[WorkerSpec]) -> None:
        self.specs = list(specs)
        self.workers: list[Worker] = []
        self._tokenizers: dict[Path, Tokenizer] = {}
        self._stack = ExitStack()

    async def __aenter__(self) -> Self:
        with ExitStack() as stack:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            context.max_sockets = context.get(zmq.SOCKET_LIMIT)
            stack.callback(context.term)
            self._directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kv-workers-")))
            bytelevel.write(self._directory)
            try:
                # All ports that were asked for are taken before the system gives away any others.
                asked = [self._asked(spec, stack) for spec in self.specs]
                for spec, given in zip(self.specs, asked, strict=True):
                    listening = given or listen(spec.host, 0)
                    self.workers.append(Worker(spec, self._tokenizer(spec), context, listening))
                    await self.workers[-1].start()
            except BaseException:
                await self._close_workers()
                raise
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            await self._close_workers()

    def _asked(self, spec: WorkerSpec, stack: ExitStack) -> socket.socket | None:
        """Take the HTTP port that a spec asks for, if it asks for one."""
        if not spec.port:
            return None
        taken = listen(spec.host, spec.port)
        stack.callback(taken.close)
        return taken

    async def _close_workers(self) -> None:
        await asyncio.gather(*(worker.close() for worker in self.workers))

    def _tokenizer(self, spec: WorkerSpec) -> Tokenizer:
        directory = spec.tokenizer or self._directory
        if directory not in self._tokenizers:
            self._tokenizers[directory] = Tokenizer(directory)
        return self._tokenizers[directory]
