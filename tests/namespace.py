"""`python -m tests.namespace COMMAND...`: run a command where its ports are nobody else's.

To be started by `unshare --net`: it brings up the loopback of the new network, which is down at first.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys

_SET_FLAGS = 0x8914  # SIOCSIFFLAGS
_UP = 0x1


def main() -> None:
    """Bring loopback up, and become the command."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
