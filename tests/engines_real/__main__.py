"""`python -m tests.engines_real [argument of pytest ...]`: set up what is missing, run the suite."""

from __future__ import annotations

import signal
import subprocess
import sys

from safetensors import SafetensorError

from tests.engines_real.engine import MODELS
from tests.engines_real.environment import ROOT, CannotRun, check, install
from tests.engines_real.model import build

# Of a test that has to start engines first, on a machine that has other things to do.
_MOST_SECONDS = 1200
_INTERRUPTED = 130


def main() -> int:
    """Return the suite's exit code, 2 where it cannot run, 130 if it was not waited for."""
    try:
        _set_up()
    except CannotRun as error:
        sys.stderr.write(f"test-engines: {error}\n")
        return 2
    except KeyboardInterrupt:
        return _INTERRUPTED
    options = ["--verbose", f"--timeout={_MOST_SECONDS}", *sys.argv[1:]]
    command = [sys.executable, "-m", "pytest", "tests/engines_real", *options]
    with subprocess.Popen(command, cwd=ROOT) as suite:
        # The suite hears of Ctrl-C itself; either way it is to stop its engines before this ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: suite.send_signal(signal.SIGINT))
        return suite.wait()


def _set_up() -> None:
    check()
    try:
        install()
        build(MODELS)
    except (OSError, SafetensorError) as error:
        raise CannotRun(f"the engines' environment or model could not be made: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
