"""The command `kv-router`, and `python -m router`; SIGHUP is held back before anything large is imported."""

from __future__ import annotations

import sys
from typing import NoReturn

from router.hangup import hold_hangups

# They take SIGHUP once they have started.
_LASTING = {"serve", "epp", "record"}


def main() -> NoReturn:
    """Run the command and leave the process."""
    if _LASTING.intersection(sys.argv[1:2]):
        hold_hangups()
    from router.cli import main as run  # noqa: PLC0415 - see above

    run()


if __name__ == "__main__":
    main()
