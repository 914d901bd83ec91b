"""`python -m router.share.child FD`: one process of a router, started by its parent and by nobody else."""

from __future__ import annotations

import socket
import sys
from typing import NoReturn

from router.cli import refuse
from router.errors import ConfigError
from router.hangup import hold_hangups
from router.share.seat import receive


def main() -> NoReturn:
    """Serve until told to stop, or until the parent is gone."""
    hold_hangups()
    line = socket.socket(fileno=int(sys.argv[1]))
    try:
        seat = receive(line)
    except EOFError:
        sys.exit(0)
    from router.service import run  # noqa: PLC0415 - the parent may have gone before it is worth the while

    try:
        run(seat.settings(), seat.flags, seat, line)
    except ConfigError as error:
        refuse(error.message)
    sys.exit(0)


if __name__ == "__main__":
    main()
