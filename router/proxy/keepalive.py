"""TCP keep-alive: a peer that is gone without a word, or a path to it, is found within half a minute.

Without it a connection that nothing is sent on looks alive for ever: a worker that thinks for long, or a
client that waits for it, may have lost power meanwhile.
"""

from __future__ import annotations

import socket

# In seconds: silence until the first question, and between questions; so many without an answer are the end.
IDLE_SECONDS, INTERVAL_SECONDS, QUESTIONS = 15, 5, 3

# Not every platform has each of them; macOS calls the first TCP_KEEPALIVE.
_TIMES = (
    (("TCP_KEEPIDLE", "TCP_KEEPALIVE"), IDLE_SECONDS),
    (("TCP_KEEPINTVL",), INTERVAL_SECONDS),
    (("TCP_KEEPCNT",), QUESTIONS),
)
# What was written and is not acknowledged: keep-alive asks nothing as long as it waits for that.
_UNACKNOWLEDGED = "TCP_USER_TIMEOUT"


def keep_alive(connection: socket.socket) -> None:
    """Switch it on; on a listening socket for every connection that comes over it. About 4 us."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for names, value in _TIMES:
        option = next((getattr(socket, name) for name in names if hasattr(socket, name)), None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def give_up_unacknowledged(connection: socket.socket) -> None:
    """End the connection, too, when what was written is not taken for as long.

    Not for clients: one that reads slowly takes nothing for a while, and may.
    """
    option = getattr(socket, _UNACKNOWLEDGED, None)
    if option is not None:
        limit = IDLE_SECONDS + INTERVAL_SECONDS * QUESTIONS
        connection.setsockopt(socket.IPPROTO_TCP, option, limit * 1000)
