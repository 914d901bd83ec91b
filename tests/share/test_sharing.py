"""Processes that tell each other of their load over their sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

from router.core.index import Index
from router.core.rank import Rank
from router.core.view import View
from router.share.mail import Mail
from router.share.sharing import Sharing
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

URL = "http://a:1"
OTHER_SPELLING = "http://A:1/"


class Process:
    """One process with one worker, under whatever URL it knows it by."""

    def __init__(self, name: str, url: str = URL) -> None:
        self.rank = Rank(url, 0, View(Index(), "m", block_size=4))
        self.sharing = Sharing(lambda: [self.rank], "router", name)

    def connect(self, inbox: socket.socket, others: list[socket.socket]) -> Mail:
        """Open its mail."""
        mail = Mail(
            asyncio.get_running_loop(),
            inbox,
            others,
            lambda payload: self.sharing.hear(payload, same_clock=True),
        )
        self.sharing.ways.append(mail.send)
        self.sharing.start()
        return mail

    @property
    def load(self) -> tuple[int, int]:
        return self.rank.load.inflight_tokens, self.rank.load.active_requests


@contextlib.contextmanager
def connected(*processes: Process) -> Iterator[list[Mail]]:
    """Connect them all, as a parent does."""
    boxes = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in processes]
    mails = []
    for process, (inbox, _) in zip(processes, boxes, strict=True):
        others = [into.dup() for box, into in boxes if box is not inbox]
        mails.append(process.connect(inbox, others))
    yield mails
    for process, mail in zip(processes, mails, strict=True):
        process.sharing.close()
        mail.close()
    for _, into in boxes:
        into.close()


async def test_load_is_seen_by_all_under_any_spelling_and_goes_with_its_process() -> None:
    one, two, three = Process("1"), Process("2", OTHER_SPELLING), Process("3")
    with connected(one, two, three):
        tickets = [each.sharing.accounts.open(each.rank.load, 100) for each in (one, two, three)]
        await until(lambda: one.load == two.load == three.load == (300, 3), "the load of all")
        tickets[0].close()
        await until(lambda: two.load == three.load == (200, 2), "the end of a request")
        two.sharing.close()
        await until(lambda: one.load == three.load == (100, 1), "two to be gone")


async def test_what_is_no_message_is_counted_and_harms_nobody() -> None:
    one, two = Process("1"), Process("2")
    with connected(one, two) as mails:
        for payload in (b"", b"x", bytes(100_000)):
            mails[1].send(payload)
        two.sharing.accounts.open(two.rank.load, 100)
        await until(lambda: one.load == (100, 1), "the load")
        assert one.sharing.undecodable == 3


async def test_what_finds_no_room_is_told_again() -> None:
    one, two = Process("1"), Process("2")
    with connected(one, two) as mails:
        two.sharing.accounts.open(two.rank.load, 100)
        while not mails[1].lost:
            mails[1].send(bytes(60_000))
        await until(lambda: one.load == (100, 1), "the load")
