"""Real ZMQ around a rank's batches: a PUB socket, sequence numbers, and a bounded history to replay.

Sockets and frames are as SGLang 0.5.23 and vLLM 0.32 have them: rank r uses base port + r for both
sockets; frames are topic, seq (8 bytes, big-endian), payload; PUB drops silently past its high-water mark.
What goes wrong on purpose is decided in `tamper.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import zmq
import zmq.asyncio

from workers.faults import NONE
from workers.ports import bind_range
from workers.tamper import Tamper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from workers.faults import Faults

Framing: TypeAlias = Literal["current", "legacy"]
SEQ_BYTES = 8
END = b"\xff" * SEQ_BYTES


@dataclass(frozen=True, slots=True)
class PublisherConfig:
    """Where and how a worker publishes. Ports are those of rank 0, 0 for any; hwm and history in batches.

    `connect`: `tcp://host:port` to connect rank 0 to, instead of binding. `replay_port` None: no replay.
    `framing`: of replay answers, `legacy` leaves the topic out.
    """

    host: str = "127.0.0.1"
    port: int = 0
    replay_port: int | None = 0
    topic: str = ""
    connect: str | None = None
    hwm: int = 100_000
    buffer_steps: int = 10_000
    framing: Framing = "current"


class Publisher:
    """The two sockets of one rank; `seq` is the number of the next batch. `reopen` makes its PUB again."""

    def __init__(
        self,
        config: PublisherConfig,
        pub: zmq.Socket[bytes],
        router: zmq.asyncio.Socket | None,
        reopen: Callable[[], zmq.Socket[bytes]],
    ) -> None:
        self.seq = 0
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

    def break_down(self, faults: Faults, rank: int) -> None:
        """Follow a plan from now on."""
        self.tamper.close()
        self.tamper = Tamper(faults, rank, self._send)
        if faults.dead or faults.late:
            self._close_pub()
        elif self._pub is None:
            self._pub = self._reopen()

    def _close_pub(self) -> None:
        if self._pub is not None:
            self._pub.close(linger=0)
            self._pub = None

    async def _answer(self, router: zmq.asyncio.Socket) -> None:
        while True:
            frames = await router.recv_multipart()
            if len(frames) < 2 or len(frames[-1]) != SEQ_BYTES:  # noqa: PLR2004 identity and start, at least
                continue
            for reply in self._replies(frames[-1]):
                await router.send_multipart([*frames[:-1], *reply])

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
        """Close both sockets at once; what subscribers have not got by now is lost."""
        self.tamper.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._close_pub()
        if self._router is not None:
            self._router.close(linger=0)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where rank 0 came out. `host` is `*` for a publisher that binds, else what it connects to."""

    host: str
    port: int
    replay_port: int | None

    def events(self, rank: int) -> str:
        """Return the address a rank publishes at, as an engine reports it."""
        return f"tcp://{self.host}:{self.port + rank}"

    def replay(self, rank: int) -> str | None:
        """Return the address a rank replays at, as an engine reports it."""
        return None if self.replay_port is None else f"tcp://*:{self.replay_port + rank}"

    def settle(self, config: PublisherConfig) -> PublisherConfig:
        """Return the configuration that opens these very ports again."""
        port = config.port if config.connect else self.port
        return replace(config, port=port, replay_port=self.replay_port)


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
    replay_port: int | None = None
    routers: Sequence[zmq.asyncio.Socket | None] = [None] * ranks
    if config.replay_port is not None:
        replay_port, routers = bind_range(router, config.host, config.replay_port, ranks)
    publishers = [
        Publisher(config, pub, routers[rank], _reopener(config, host, port + rank, context))
        for rank, pub in enumerate(pubs)
    ]
    return publishers, Endpoints(host, port, replay_port)


def _open_pubs(
    config: PublisherConfig, ranks: int, context: zmq.Context[zmq.Socket[bytes]]
) -> tuple[str, int, list[zmq.Socket[bytes]]]:
    """Return where rank 0 publishes, and the sockets: bound, or connected to consecutive ports."""

    def pub() -> zmq.Socket[bytes]:
        socket = context.socket(zmq.PUB)
        socket.sndhwm = config.hwm
        return socket

    if config.connect is None:
        return "*", *bind_range(pub, config.host, config.port, ranks)
    host, port = _address(config.connect)
    pubs = [pub() for _ in range(ranks)]
    for rank, opened in enumerate(pubs):
        opened.connect(f"tcp://{host}:{port + rank}")
    return host, port, pubs


def _reopener(
    config: PublisherConfig, host: str, port: int, context: zmq.Context[zmq.Socket[bytes]]
) -> Callable[[], zmq.Socket[bytes]]:
    connect = None if config.connect is None else f"tcp://{host}:{port}"
    own = replace(config, port=port, connect=connect)
    return lambda: _open_pubs(own, 1, context)[2][0]


def _address(endpoint: str) -> tuple[str, int]:
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)
