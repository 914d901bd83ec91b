"""`kv-router top`: the fleet live in a terminal, from the stream that the page reads too.

On a terminal each picture is drawn over the one before, on a screen of its own, and anew when the window
changes; into a pipe or a file they go one after another, as plain text.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import termios
import tty
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from router.commands.access import Access, router_at
from router.commands.ink import Ink, say
from router.commands.picture import Picture
from router.errors import CommandFailed
from router.observe.seen import Seen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from router.commands.access import Router

_OK = 200
_AGAIN_SECONDS = 1.0
_SCREEN, _BACK = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"
_QUIT = (b"q", b"Q", b"\x03", b"\x04")


def run(access: Access, *, once: bool) -> None:
    """Show pictures until told to stop. Raises CommandFailed when the router cannot be asked at first."""
    ink = Ink()
    if once or not ink.terminal:
        asyncio.run(_print(access, ink, once=once))
    else:
        with _own_screen():
            asyncio.run(_draw(access, ink))


async def _print(access: Access, ink: Ink, *, once: bool) -> None:
    picture = Picture(access.url, ink)
    columns = shutil.get_terminal_size().columns if ink.terminal else None
    async with router_at(access) as router:
        async for seen in snapshots(router):
            picture.see(seen)
            say("\n".join(picture.lines(columns, None)))
            if once:
                return
            say("")
    raise CommandFailed(f"{access.url} has ended the stream")


async def snapshots(router: Router) -> AsyncIterator[Seen]:
    """Yield what the router sends, until it ends. Raises CommandFailed."""
    response = await router.open("/watch")
    try:
        if response.status != _OK:
            raise router.refusal(response.status, await response.read_all(1 << 20))
        kept = b""
        while piece := await response.read():
            *events, kept = (kept + piece).split(b"\n\n")
            for event in events:
                if event.startswith(b"data: "):
                    yield _seen(event[6:], router)
    finally:
        response.close()


def _seen(data: bytes, router: Router) -> Seen:
    try:
        return msgspec.json.decode(data, type=Seen)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise router.stranger() from None


def _size() -> tuple[int, int]:
    """Return columns and rows: the terminal's own, which change, and not what the environment said once."""
    try:
        return os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return shutil.get_terminal_size()


async def _draw(access: Access, ink: Ink) -> None:
    """Draw until a key or a signal says to stop; a router that goes away is waited for."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    picture = Picture(access.url, ink)

    def draw() -> None:
        columns, rows = _size()
        shown = (line + _REST_OF_LINE for line in picture.lines(columns, rows))
        sys.stdout.write(_HOME + "\n".join(shown) + _REST)
        sys.stdout.flush()

    def key() -> None:
        if os.read(sys.stdin.fileno(), 64)[:1] in (*_QUIT, b""):
            stop.set()

    loop.add_signal_handler(signal.SIGWINCH, draw)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    if sys.stdin.isatty():
        loop.add_reader(sys.stdin.fileno(), key)
    following = asyncio.create_task(_follow(access, picture, draw))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((following, stopped), return_when=asyncio.FIRST_COMPLETED)
    for task in (following, stopped):
        task.cancel()
    await asyncio.gather(stopped, return_exceptions=True)
    if not stop.is_set():
        await following


async def _follow(access: Access, picture: Picture, draw: Callable[[], None]) -> None:
    """Take in what comes. Raises what is wrong at the beginning; later it is shown, and tried again."""
    while True:
        try:
            async with router_at(access) as router:
                async for seen in snapshots(router):
                    picture.see(seen)
                    draw()
            picture.lose("the router has ended the stream")
        except CommandFailed as failure:
            if not picture.has_any:
                raise
            picture.lose(failure.message)
        draw()
        await asyncio.sleep(_AGAIN_SECONDS)


@contextmanager
def _own_screen() -> Iterator[None]:
    """Have a screen and the keys; give both back whatever happens."""
    keys = sys.stdin.fileno() if sys.stdin.isatty() else None
    before = termios.tcgetattr(keys) if keys is not None else None
    try:
        if keys is not None:
            tty.setcbreak(keys)
        sys.stdout.write(_SCREEN)
        yield
    finally:
        with suppress(OSError, termios.error):  # the terminal may be gone
            sys.stdout.write(_BACK)
            sys.stdout.flush()
            if keys is not None and before is not None:
                termios.tcsetattr(keys, termios.TCSADRAIN, before)
