"""Routers and workers that are all up at the same time, each on the core that is meant for it.

Routers share one core and everything else the other: what is measured is how much of its core each takes.
`KV_ROUTER_SGLANG` and `KV_ROUTER_VLLM` name the programs of sglang-router==0.3.2 and vllm-router==0.1.17,
where those are installed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.bench.chats import Chats
from tests.bench.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SGLANG = os.environ.get("KV_ROUTER_SGLANG", "")
VLLM = os.environ.get("KV_ROUTER_VLLM", "")
NEEDS = (
    ""
    if SGLANG and VLLM
    else "; beside it others: KV_ROUTER_SGLANG=program of sglang-router, KV_ROUTER_VLLM=of vllm-router"
)
UP_SECONDS = 90.0
# Ends what it starts when this process ends in whatever way.
_WITH_US = ("setpriv", "--pdeathsig", "KILL")
WORKERS = 2
KV = "kv"


@dataclass(slots=True)
class Server:
    """A router, or a worker that is asked directly."""

    name: str
    url: str
    process: subprocess.Popen[Any]

    def cpu_seconds(self) -> float:
        """Return the CPU time of its whole process tree so far, by the kernel's clocks of processes."""
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in _tree(self.process.pid))

    def sample(self, name: str) -> float:
        """Return the sum of a metric over its labels, or of those lines that begin with `name`."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@dataclass(slots=True)
class Bench:
    """What runs: `direct` is one of the workers."""

    direct: Server
    routers: list[Server]
    chats: Chats
    scratch: Path

    def confirm(self, least_overlap: float) -> None:
        """Fail if kv was wrong about tokens or found too little overlap, and so did less than it should."""
        kv = next(router for router in self.routers if router.name == KV)
        right = kv.sample('kv_router_token_checks_total{outcome="right"}')
        wrong = kv.sample('kv_router_token_checks_total{outcome="wrong"}')
        share = kv.sample("kv_router_overlap_tokens_total") / kv.sample("kv_router_prompt_tokens_total")
        print(f"\nkv: token checks {right:,.0f} right, {wrong:,.0f} wrong; overlap {share:.1%} of all tokens")
        assert right > 0
        assert wrong == 0
        assert share >= least_overlap


def rounds() -> int:
    """Return how often everything is to be measured."""
    given = os.environ.get("KV_ROUTER_ROUNDS", "5")
    if not given.isdecimal() or int(given) < 1:
        sys.exit(f"KV_ROUTER_ROUNDS={given}: expected a whole number of rounds, at least 1")
    return int(given)


def missing(*tools: str) -> list[str]:
    """Return what is needed here and not there."""
    absent = [tool for tool in ("setpriv", "taskset", *tools) if shutil.which(tool) is None]
    return [*absent, *(["two cores"] if len(os.sched_getaffinity(0)) < 2 else [])]


@contextmanager
def running() -> Iterator[Bench]:
    """Start everything and stop it in the end; meanwhile this process runs on the core of the load."""
    cores = os.sched_getaffinity(0)
    first, second = sorted(cores)[:2]
    with TemporaryDirectory() as made, ExitStack() as stack:
        scratch = Path(made)
        chats = Chats.made_in(scratch)
        os.sched_setaffinity(0, {second})
        stack.callback(os.sched_setaffinity, 0, cores)
        workers = [stack.enter_context(_worker()) for _ in range(WORKERS)]
        commands = _commands([worker.url for worker in workers], chats.directory)
        routers = [
            stack.enter_context(_router(name, command, first, scratch)) for name, command in commands.items()
        ]
        for router in routers:
            _wait(router, chats, scratch)
        yield Bench(workers[0], routers, chats, scratch)


def _commands(workers: list[str], tokenizer: str) -> dict[str, list[str]]:
    """Return the command of each router, in which {port} and {metrics} are free ports."""
    ours = [sys.executable, "-m", "router", "serve", "--port", "{port}", "--log-level", "warning"]
    ours += [part for worker in workers for part in ("--worker", worker)]
    plain = ["--host", "127.0.0.1", "--port", "{port}", "--worker-urls", *workers, "--log-level", "error"]
    plain += ["--prometheus-port", "{metrics}"]
    commands = {
        "bare proxy": [sys.executable, "-m", "tests.bench.bare", "{port}", *workers],
        "round_robin": [*ours, "--policy", "round_robin"],
        KV: [*ours, "--policy", "kv", "--tokenizer", tokenizer],
    }
    if SGLANG:
        commands["sglang-router cache_aware"] = [SGLANG, "launch", *plain, "--policy", "cache_aware"]
    if VLLM:
        commands["vllm-router round_robin"] = [VLLM, *plain, "--policy", "round_robin"]
    return commands


@contextmanager
def _worker() -> Iterator[Server]:
    command = [*_WITH_US, sys.executable, "-m", "tests.bench.dummy"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server("direct", f"http://127.0.0.1:{int(process.stdout.readline())}", process)
        finally:
            process.kill()


@contextmanager
def _router(name: str, command: list[str], core: int, scratch: Path) -> Iterator[Server]:
    port, metrics = _free_ports(2)
    filled = [part.format(port=port, metrics=metrics) for part in command]
    with (
        _log(scratch, name).open("wb") as log,
        subprocess.Popen(
            [*_WITH_US, "taskset", "--cpu-list", str(core), *filled],
            cwd=ROOT,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
        ) as process,
    ):
        try:
            yield Server(name, f"http://127.0.0.1:{port}", process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _log(scratch: Path, name: str) -> Path:
    return scratch / f"{name}.log"


def _wait(router: Server, chats: Chats, scratch: Path) -> None:
    """Wait until a router has a chat answered."""
    end = time.monotonic() + UP_SECONDS
    while router.process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), contextlib.closing(Client(router.url)) as client:
            client.ask(chats.body(chats.words[:1]))
            return
        time.sleep(0.3)
    log = _log(scratch, router.name).read_text(errors="replace")[-2000:]
    sys.exit(f"{router.name} does not answer, and has said: {log}")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [free.getsockname()[1] for free in sockets]


def _tree(root: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [root]
    for pid in found:
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, listed.read_text().split())
    return found
