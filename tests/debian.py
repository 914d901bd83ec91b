"""Install what `debian-packages.txt` names and this machine lacks: the real programs that tests run.

Without Debian's tools or the right to use them it says what is missing and leaves the rest to the tests,
which fail in one sentence where they need it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import which

LIST = Path(__file__).with_name("debian-packages.txt")


def listed() -> dict[str, str]:
    """Return the package of each command."""
    lines = (line.split() for line in LIST.read_text().splitlines() if not line.startswith("#"))
    return {line[0]: line[1] for line in lines if line}


def missing() -> list[str]:
    """Return the packages whose command is not there, each once."""
    # Daemons live where an ordinary user's PATH may not lead.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    return sorted({package for command, package in listed().items() if which(command, path=path) is None})


def install(packages: list[str]) -> int:
    """Install them; return apt-get's exit code."""
    root = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        done = subprocess.run([*root, *environment, "apt-get", "--quiet=2", *command], check=False)
    return done.returncode


def main() -> None:
    """Install what is missing, or say what is."""
    packages = missing()
    if not packages:
        return
    can = which("apt-get") and (os.geteuid() == 0 or which("sudo"))
    if not can or install(packages):
        sys.stderr.write(f"not installed, needed by some tests: {' '.join(packages)}\n")


if __name__ == "__main__":
    main()
