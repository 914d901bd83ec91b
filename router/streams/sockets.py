"""How the router opens ZMQ sockets."""

from __future__ import annotations

import zmq

# Messages that may wait in ZMQ's own queue, some seconds' worth; what is over it is dropped and is a gap.
RECEIVE_HWM = 5_000
LATEST_HWM = 100
# A batch of a 128k-token prompt at one token a block has about 2 MiB; a larger one ends the connection.
MOST_BYTES = 16 * 2**20


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return a context with room for two sockets on each of thousands of ranks."""
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made.max_sockets = 16_384
    return made


def subscriber(
    zmq_context: zmq.Context[zmq.Socket[bytes]], endpoint: str, topic: str, *, bind: bool
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """Return a SUB socket, and one that gets a message whenever that has made or lost a connection.

    With `bind` the engine connects to us. Raises zmq.ZMQError.
    """
    socket = _socket(zmq_context, zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, RECEIVE_HWM)
    socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
    # Watched before it is opened: on one machine a connection can stand at once.
    monitor = socket.get_monitor_socket(zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED)
    try:
        _open(socket, endpoint, bind=bind)
    except zmq.ZMQError:
        monitor.close(linger=0)
        raise
    return socket, monitor


def listener(zmq_context: zmq.Context[zmq.Socket[bytes]], endpoint: str, topic: str) -> zmq.Socket[bytes]:
    """Return a SUB socket of which only the latest messages matter. Raises zmq.ZMQError."""
    socket = _socket(zmq_context, zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, LATEST_HWM)
    socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
    _open(socket, endpoint, bind=False)
    return socket


def dealer(zmq_context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """Return a DEALER for one replay: a REQ socket could take a single answer only."""
    socket = _socket(zmq_context, zmq.DEALER)
    socket.setsockopt(zmq.RCVHWM, 0)
    _open(socket, endpoint, bind=False)
    return socket


def _socket(zmq_context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    socket: zmq.Socket[bytes] = zmq_context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
    # A peer that is gone without a word is found by its silence to these, and reconnected to.
    socket.setsockopt(zmq.HEARTBEAT_IVL, 5000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15000)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    return socket


def _open(socket: zmq.Socket[bytes], endpoint: str, *, bind: bool) -> None:
    try:
        if bind:
            socket.bind(endpoint)
        else:
            socket.connect(endpoint)
    except zmq.ZMQError:
        socket.close(linger=0)
        raise
