"""Real ZMQ around a rank's batches: a PUB socket, sequence numbers, and a bounded history to replay.

Sockets and frames are as SGLang 0.5.23 and vLLM 0.32 have them: rank r uses base port + r for each of its
sockets; frames are topic, seq (8 bytes, big-endian), payload; PUB drops silently past its high-water mark.
SGLang's load socket is a PUB of its own with the topic `load` and numbers of its own.
What goes wrong on purpose is decided in `tamper.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import zmq
import zmq.asyncio

from workers.faults import NONE
from workers.ports import bind_again, bind_range
from workers.tamper import Tamper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from workers.faults import Faults

Framing: TypeAlias = Literal["current", "legacy"]
Zmq = TypeVar("Zmq", bound="zmq.Socket[Any]")
SEQ_BYTES = 8
END = b"\xff" * SEQ_BYTES
LOAD_TOPIC = "load"
_PORTION = 16  # replies, about a millisecond


@dataclass(frozen=True, slots=True)
class PublisherConfig:
    """Where and how a worker publishes. Ports are those of rank 0, 0 for any; hwm and history in batches.

    `connect`: `tcp://host:port` to connect rank 0 to, instead of binding. `replay_port` None: no replay.
    `framing`: of replay answers, `legacy` leaves the topic out. `load_port` None: no load socket.
    """

    host: str = "127.0.0.1"
    port: int = 0
    replay_port: int | None = 0
    topic: str = ""
    connect: str | None = None
    hwm: int = 100_000
    buffer_steps: int = 10_000
    framing: Framing = "current"
    load_port: int | None = None


class Publisher:
    """The sockets of one rank; `seq` is the number of the next batch. `reopen` makes its PUB again."""

    def __init__(
        self,
        config: PublisherConfig,
        pub: zmq.Socket[bytes],
        router: zmq.asyncio.Socket | None,
        reopen: Callable[[], zmq.Socket[bytes]],
        load: zmq.Socket[bytes] | None,
    ) -> None:
        self.seq = 0
        self.load = load
        self._load_seq = 0
        self._topic = config.topic.encode()
        self._framing = config.framing
        self._history: deque[tuple[bytes, bytes]] = deque(maxlen=config.buffer_steps)
        self._pub: zmq.Socket[bytes] | None = pub
        self._reopen = reopen
        self._router = router
        self.tamper = Tamper(NONE, 0, self._send)
        self._task = None if router is None else asyncio.create_task(self._answer(router))

    def send(self, payload: bytes) -> None:
        """Publish one batch; never blocks."""
        number = self.seq.to_bytes(SEQ_BYTES, "big")
        self.seq += 1
        if self.tamper.idle:
            self._history.append((number, payload))
            self._send(number, payload)
        elif (kept := self.tamper.send(number, payload)) is not None:
            self._history.append((number, kept))

    def _send(self, number: bytes, payload: bytes) -> None:
        if self._pub is not None:
            self._pub.send_multipart([self._topic, number, payload], zmq.NOBLOCK)

    def send_load(self, payload: bytes) -> None:
        """Publish one load, which no replay has; never blocks."""
        if self.load is not None:
            number = self._load_seq.to_bytes(SEQ_BYTES, "big")
            self._load_seq += 1
            self.load.send_multipart([LOAD_TOPIC.encode(), number, payload], zmq.NOBLOCK)

    def break_down(self, faults: Faults, rank: int) -> None:
        """Follow a plan from now on; a socket that was closed stays so until `open`."""
        self.tamper.close()
        self.tamper = Tamper(faults, rank, self._send)
        if faults.dead or faults.late:
            self._close_pub()

    async def open(self) -> None:
        """Open the PUB socket at its place again if it is closed; raises OSError when that is taken."""
        if self._pub is None:
            self._pub = await bind_again(self._reopen)

    def _close_pub(self) -> None:
        if self._pub is not None:
            self._pub.close(linger=0)
            self._pub = None

    async def _answer(self, router: zmq.asyncio.Socket) -> None:
        while True:
            frames = await router.recv_multipart()
            if len(frames) < 2 or len(frames[-1]) != SEQ_BYTES:  # noqa: PLR2004 identity and start, at least
                continue
            await self.replay(frames[:-1], frames[-1])

    async def replay(self, envelope: list[bytes], start: bytes) -> None:
        """Answer a replay request: what the history has from number `start` (8 bytes) on, then the end.

        Others get their turn between portions. The queue has no limit and takes everything at once: without
        that no live batch would be sent before the last old one, nor would anything else happen meanwhile.
        """
        if self._router is None:
            return
        for sent, reply in enumerate(self._replies(start), 1):
            await self._router.send_multipart([*envelope, *reply])
            if sent % _PORTION == 0:
                await asyncio.sleep(0)

    def _replies(self, start: bytes) -> Iterator[list[bytes]]:
        how = self.tamper.faults.replay
        if how == "hangs":
            return
        topic = [self._topic] if self._framing == "current" and how != "legacy" else []
        for number, payload in list(self._history)[-1 if how == "short" else 0 :]:
            if number >= start:
                yield [*topic, number, payload]
        if how != "no_end":
            yield [*([b""] if topic else []), END, b""]

    async def close(self) -> None:
        """Close all sockets at once; what subscribers have not got by now is lost."""
        self.tamper.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._close_pub()
        for socket in (self._router, self.load):
            if socket is not None:
                socket.close(linger=0)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where rank 0 came out. `host` is `*` for a publisher that binds, else what it connects to."""

    host: str
    port: int
    replay_port: int | None
    load_port: int | None = None

    def events(self, rank: int) -> str:
        """Return the address a rank publishes at, as an engine reports it."""
        return f"tcp://{self.host}:{self.port + rank}"

    def replay(self, rank: int) -> str | None:
        """Return the address a rank replays at, as an engine reports it."""
        return None if self.replay_port is None else f"tcp://*:{self.replay_port + rank}"

    def load(self, rank: int) -> str | None:
        """Return the address a rank publishes its load at, as an engine reports it."""
        return None if self.load_port is None else f"tcp://*:{self.load_port + rank}"

    def settle(self, config: PublisherConfig) -> PublisherConfig:
        """Return the configuration that opens these very ports again."""
        port = config.port if config.connect else self.port
        return replace(config, port=port, replay_port=self.replay_port, load_port=self.load_port)


def open_publishers(
    config: PublisherConfig, ranks: int, context: zmq.Context[zmq.Socket[bytes]]
) -> tuple[list[Publisher], Endpoints]:
    """Open the sockets of all ranks of a worker; raises OSError naming the ports when they are taken."""
    asyncio_context = zmq.asyncio.Context.shadow(context)

    def router() -> zmq.asyncio.Socket:
        socket = asyncio_context.socket(zmq.ROUTER)
        socket.sndhwm = 0
        return socket

    host, port, pubs = _open_pubs(config, ranks, context)
    opened: list[zmq.Socket[Any]] = [*pubs]
    try:
        replay_port, routers = _bound(router, config.host, config.replay_port, ranks)
        opened += [socket for socket in routers if socket is not None]
        load_port, loads = _bound(lambda: _pub(config, context), config.host, config.load_port, ranks)
    except OSError:
        for socket in opened:
            socket.close(linger=0)
        raise
    publishers = [
        Publisher(config, pub, routers[rank], _reopener(config, host, port + rank, context), loads[rank])
        for rank, pub in enumerate(pubs)
    ]
    return publishers, Endpoints(host, port, replay_port, load_port)


def _bound(
    make: Callable[[], Zmq], host: str, port: int | None, ranks: int
) -> tuple[int | None, Sequence[Zmq | None]]:
    """Return the first port and a socket per rank, None of either for no port."""
    return (None, [None] * ranks) if port is None else bind_range(make, host, port, ranks)


def _pub(config: PublisherConfig, context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PUB)
    socket.sndhwm = config.hwm
    return socket


def _open_pubs(
    config: PublisherConfig, ranks: int, context: zmq.Context[zmq.Socket[bytes]]
) -> tuple[str, int, list[zmq.Socket[bytes]]]:
    """Return where rank 0 publishes, and the sockets: bound, or connected to consecutive ports."""
    if config.connect is None:
        return "*", *bind_range(lambda: _pub(config, context), config.host, config.port, ranks)
    host, port = address_of(config.connect)
    pubs = [_pub(config, context) for _ in range(ranks)]
    for rank, opened in enumerate(pubs):
        opened.ipv6 = ":" in host
        try:
            opened.connect(f"tcp://{host}:{port + rank}")
        except zmq.ZMQError as error:
            for pub in pubs:
                pub.close(linger=0)
            raise OSError(f"cannot connect to {host}:{port + rank}: {error.strerror}") from error
    return host, port, pubs


def _reopener(
    config: PublisherConfig, host: str, port: int, context: zmq.Context[zmq.Socket[bytes]]
) -> Callable[[], zmq.Socket[bytes]]:
    connect = None if config.connect is None else f"tcp://{host}:{port}"
    own = replace(config, port=port, connect=connect)
    return lambda: _open_pubs(own, 1, context)[2][0]


def address_of(endpoint: str) -> tuple[str, int]:
    """Return host and port of `tcp://host:port`, an IPv6 host with its brackets."""
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)
