"""How the router opens ZMQ sockets."""

from __future__ import annotations

import zmq

# Messages that may wait in ZMQ's own queue; what is over it is dropped by the engine's side and shows as
# a gap. The engines' own default for their side (SGLang 0.5.23, vLLM 0.32).
RECEIVE_HWM = 100_000


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return a context with room for two sockets on each of thousands of ranks."""
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made.max_sockets = 16_384
    return made


def subscriber(
    zmq_context: zmq.Context[zmq.Socket[bytes]], endpoint: str, topic: str, *, bind: bool
) -> zmq.Socket[bytes]:
    """Return a SUB socket; with `bind` the engine connects to us. Raises zmq.ZMQError."""
    socket = _socket(zmq_context, zmq.SUB)
    socket.setsockopt(zmq.RCVHWM, RECEIVE_HWM)
    socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
    _open(socket, endpoint, bind=bind)
    return socket


def dealer(zmq_context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """Return a DEALER for one replay: a REQ socket could take a single answer only."""
    socket = _socket(zmq_context, zmq.DEALER)
    socket.setsockopt(zmq.RCVHWM, 0)
    _open(socket, endpoint, bind=False)
    return socket


def monitor(socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """Return a socket that gets a message whenever `socket` has made a connection."""
    return socket.get_monitor_socket(zmq.Event.HANDSHAKE_SUCCEEDED)


def _socket(zmq_context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    socket: zmq.Socket[bytes] = zmq_context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, 1)
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
