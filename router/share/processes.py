"""`--processes N`: the parent of N processes on one port.

It serves nobody. It holds the listening sockets, one for each process, among which the system divides new
connections; those of a process which has died are taken by the others until another one is there (`Doors`).
It starts anew who dies, passes signals on, and puts in order what all processes must follow (`Exchange`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.hangup import take_hangups
from router.listening import bind_together, check_free, shown
from router.observe import logs
from router.share.allowances import open_allowances
from router.share.exchange import Exchange
from router.share.line import Line
from router.share.seat import Seat, send
from router.variables import warn_of_strays

if TYPE_CHECKING:
    from router.config import Config
    from router.layers import Flags

# In seconds. A process that has run so long and dies is started at once.
_FIRST_PAUSE, _LONGEST_PAUSE, _RUN_WELL = 0.1, 5.0, 10.0
# How long after the time that requests have to end everything must be over.
_LATE = 15.0
_FAILED = 1
_log = logging.getLogger(__name__)


def run(config: Config, flags: Flags) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Raises ConfigError."""
    logs.configure(config.log_level, form=config.log_format)
    warn_of_strays(os.environ)
    listening = bind_together(config.host, config.port, config.processes)
    if config.epp_port:
        check_free(config.host, config.epp_port, "--epp-port")
    return asyncio.run(Processes(config, flags, listening).run())


@dataclass(slots=True)
class _Place:
    """What stays while processes come and go: a listening socket, an inbox and the end that fills it."""

    listening: socket.socket
    inbox: socket.socket
    into: socket.socket
    generation: int = 0
    process: asyncio.subprocess.Process | None = None


class Processes:
    """The processes of one router."""

    def __init__(self, config: Config, flags: Flags, listening: list[socket.socket]) -> None:
        self._config = config
        self._flags = flags
        self._router = secrets.token_hex(8)
        self._places = [
            _Place(each, *socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)) for each in listening
        ]
        self._limits = open_allowances()
        self._exchange = Exchange()
        self._stopping = asyncio.Event()
        self._codes: list[int] = []

    async def run(self) -> int:
        """Run them; the first one alone at first, so that what is wrong with the settings is said once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        take_hangups(loop, self._exchange.reload)
        url = shown(self._places[0].listening, "http" if self._config.tls_cert is None else "https")
        watch = asyncio.ensure_future(self._exchange.watch())
        await asyncio.gather(self._tell(url), *(self._keep(index) for index in range(len(self._places))))
        watch.cancel()
        return next((code for code in self._codes if code), 0)

    async def _tell(self, url: str) -> None:
        """Say where clients find the router, once the first process has found nothing wrong."""
        if await self._exchange.joined(self._stopping):
            _log.info("listening on %s with %d processes", url, len(self._places))

    async def _keep(self, index: int) -> None:
        """Have one place taken until all is to stop."""
        pause = _FIRST_PAUSE
        if index and not await self._exchange.joined(self._stopping):
            return
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._serve(index)
            if self._stopping.is_set() or not self._exchange.has_joined:
                self._codes.append(code if code >= 0 else self._killed(-code))
                self._stopping.set()
                return
            pause = _FIRST_PAUSE if time.monotonic() > began + _RUN_WELL else pause
            _log.error("process %d has ended (%s); another one in %.1f s", index, _how(code), pause)
            await self._wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _killed(self, number: int) -> int:
        """Return the exit code for a process that a signal has ended: as it was told, or not."""
        return 0 if number == signal.SIGTERM and self._stopping.is_set() else _FAILED

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _serve(self, index: int) -> int:
        """Run one process to its end; return its exit code."""
        place = self._places[index]
        place.generation += 1
        seat = self._seat(index)
        ours, theirs = socket.socketpair()
        with theirs:
            files = (theirs.fileno(), *seat.listening, seat.inbox, *seat.others, seat.limits)
            place.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "router.share.child", str(theirs.fileno())),
                pass_fds=files,
                process_group=0,  # a terminal's Ctrl-C is for the parent alone
            )
        if self._stopping.is_set():
            place.process.terminate()
        await self._follow(index, seat, ours)
        return await place.process.wait()

    async def _follow(self, index: int, seat: Seat, ours: socket.socket) -> None:
        """Be a process's parent until its end of the line is closed."""
        process = self._places[index].process
        assert process is not None  # noqa: S101 - it has just been started
        try:
            await asyncio.to_thread(send, seat, ours)
        except OSError:
            ours.close()
            return
        reader, writer = await asyncio.open_connection(sock=ours)
        member = self._exchange.member(index, seat.sender, process.send_signal)
        member.line = Line(reader, writer, member.answer)
        await member.line.run()
        self._exchange.gone(member)

    def _seat(self, index: int) -> Seat:
        place = self._places[index]
        return Seat(
            self._config,
            self._flags,
            self._router,
            f"{self._router}-{index}-{place.generation}",
            index,
            late=self._exchange.has_joined,
            listening=tuple(each.listening.fileno() for each in self._places),
            inbox=place.inbox.fileno(),
            others=tuple(other.into.fileno() for other in self._places if other is not place),
            limits=self._limits,
            good=dict(self._exchange.good),
        )

    def _stop(self, number: signal.Signals) -> None:
        """Pass the word on; connections that come from now on are refused."""
        if not self._stopping.is_set():
            _log.info("stopping %d processes", len(self._places))
            self._stopping.set()
            for place in self._places:
                place.listening.close()
            asyncio.get_running_loop().call_later(
                self._config.leave_seconds + self._config.grace_seconds + _LATE, self._kill
            )
            number = signal.SIGTERM
        self._pass_on(number)

    def _pass_on(self, number: signal.Signals) -> None:
        for place in self._places:
            process = place.process
            if process is not None and process.returncode is None:
                process.send_signal(number)

    def _kill(self) -> None:
        self._pass_on(signal.SIGKILL)


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
