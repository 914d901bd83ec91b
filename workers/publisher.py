"""Real ZMQ around a rank's batches: a PUB socket, sequence numbers, and a bounded history to replay.

Sockets and frames are as SGLang 0.5.23 and vLLM 0.32 have them: rank r uses base port + r for both
sockets; frames are topic, seq (8 bytes, big-endian), payload; PUB drops silently past its high-water mark.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import zmq
import zmq.asyncio

from workers.ports import bind_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    """The two sockets of one rank; `seq` is the number of the next batch."""

    def __init__(
        self, config: PublisherConfig, pub: zmq.Socket[bytes], router: zmq.asyncio.Socket | None
    ) -> None:
        self.seq = 0
        self._topic = config.topic.encode()
        self._framing = config.framing
        self._history: deque[tuple[bytes, bytes]] = deque(maxlen=config.buffer_steps)
        self._pub = pub
        self._router = router
        self._task = None if router is None else asyncio.create_task(self._answer(router))

    def send(self, payload: bytes) -> None:
        """Publish one batch; never blocks."""
        number = self.seq.to_bytes(SEQ_BYTES, "big")
        self.seq += 1
        self._history.append((number, payload))
        self._pub.send_multipart([self._topic, number, payload], zmq.NOBLOCK)

    async def _answer(self, router: zmq.asyncio.Socket) -> None:
        while True:
            frames = await router.recv_multipart()
            if len(frames) < 2 or len(frames[-1]) != SEQ_BYTES:  # noqa: PLR2004 identity and start, at least
                continue
            for reply in self._replies(frames[-1]):
                await router.send_multipart([*frames[:-1], *reply])

    def _replies(self, start: bytes) -> Iterator[list[bytes]]:
        topic = [self._topic] if self._framing == "current" else []
        for number, payload in list(self._history):
            if number >= start:
                yield [*topic, number, payload]
        yield [*([b""] if topic else []), END, b""]

    async def close(self) -> None:
        """Close both sockets at once; what subscribers have not got by now is lost."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for socket in (self._pub, self._router):
            if socket is not None:
                socket.close(linger=0)


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


def open_publishers(
    config: PublisherConfig, ranks: int, context: zmq.Context[zmq.Socket[bytes]]
) -> tuple[list[Publisher], Endpoints]:
    """Open the sockets of all ranks of a worker; raises OSError naming the ports when they are taken."""
    asyncio_context = zmq.asyncio.Context.shadow(context)

    def pub() -> zmq.Socket[bytes]:
        socket = context.socket(zmq.PUB)
        socket.sndhwm = config.hwm
        return socket

    def router() -> zmq.asyncio.Socket:
        socket = asyncio_context.socket(zmq.ROUTER)
        socket.sndhwm = 0
        return socket

    if config.connect is None:
        host = "*"
        port, pubs = bind_range(pub, config.host, config.port, ranks)
    else:
        host, port = _address(config.connect)
        pubs = [pub() for _ in range(ranks)]
    replay_port: int | None = None
    routers: Sequence[zmq.asyncio.Socket | None] = [None] * ranks
    if config.replay_port is not None:
        replay_port, routers = bind_range(router, config.host, config.replay_port, ranks)
    for rank, opened in enumerate(pubs if config.connect else []):
        opened.connect(f"tcp://{host}:{port + rank}")
    publishers = [Publisher(config, *sockets) for sockets in zip(pubs, routers, strict=True)]
    return publishers, Endpoints(host, port, replay_port)


def _address(endpoint: str) -> tuple[str, int]:
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)
