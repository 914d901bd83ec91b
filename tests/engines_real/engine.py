"""One vLLM server as its operator starts, stops and kills it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import closing, suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING

from tests.engines_real.environment import HOME
from tests.engines_real.model import ADAPTER, MAX_TOKENS, NAME
from tests.engines_real.scaling import BACKEND

if TYPE_CHECKING:
    from pathlib import Path

MODELS = HOME / "models"
LOGS = HOME / "logs"
BLOCK_SIZE = 32  # on a CPU a multiple of it
_BOOT_SECONDS, _STOP_SECONDS = 600.0, 30.0
_LAST_LINES = 30
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_HOST_IP": "127.0.0.1",
}
_OPTIONS = [
    *("--host", "127.0.0.1", "--served-model-name", NAME, "--dtype", "float32"),
    *("--max-model-len", str(MAX_TOKENS), "--max-num-seqs", "16", "--block-size", str(BLOCK_SIZE)),
    *("--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    *("--weight-transfer-config", json.dumps({"backend": BACKEND})),
    *("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"{ADAPTER}={MODELS / 'adapter'}"),
]


@dataclass(frozen=True, slots=True)
class Plan:
    """One server: its ports (events and replay those of rank 0; None: no replay), and what is its own."""

    name: str
    port: int
    events: int
    replay: int | None
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    ranks: int = 1

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """Return what its operator would type."""
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self.events}",
            "topic": "kv-events",
        }
        if self.replay is not None:
            events["replay_endpoint"] = f"tcp://*:{self.replay}"
        program = [str(HOME / "bin" / "vllm"), "serve", str(MODELS / "model"), "--port", str(self.port)]
        return [*program, *_OPTIONS, "--kv-events-config", json.dumps(events), *self._ranks(), *self.options]

    def _ranks(self) -> list[str]:
        return ["--data-parallel-size", str(self.ranks)] if self.ranks > 1 else []


class NotUp(Exception):
    """Why an engine is not there, with the last lines of its log."""


@dataclass(slots=True)
class Engine:
    """A running server, in a process group of its own."""

    plan: Plan
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        """Where it serves."""
        return self.plan.url

    @classmethod
    def start(cls, plan: Plan) -> Engine:
        """Start it; it takes a minute or more until it is `up`. Raises NotUp."""
        for port in (plan.port, *range(plan.events, plan.events + plan.ranks)):
            if not _is_free(port):
                raise NotUp(f"port {port} is taken: stop who listens there, perhaps an engine of another run")
        LOGS.mkdir(exist_ok=True)
        log = LOGS / f"{plan.name}.log"
        environment = {**os.environ, **_ENVIRONMENT, **dict(plan.environment)}
        with log.open("wb") as file:
            process = subprocess.Popen(
                plan.command(), stdout=file, stderr=file, env=environment, start_new_session=True
            )
        return cls(plan, process, log)

    def wait(self) -> None:
        """Wait until it is up. Raises NotUp if it never is."""
        end = time.monotonic() + _BOOT_SECONDS
        while not (alive := self.process.poll() is None) or not self.healthy():
            if not alive:
                raise NotUp(f"the engine {self.plan.name} has ended: {self._last()}")
            if time.monotonic() > end:
                raise NotUp(
                    f"the engine {self.plan.name} is not up after {_BOOT_SECONDS:g} s: {self._last()}"
                )
            time.sleep(0.5)

    def _last(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return "\n".join([f"the end of {self.log}:", *lines])

    def healthy(self) -> bool:
        """Whether it answers."""
        with suppress(urllib.error.URLError, HTTPException, ConnectionError, TimeoutError):
            return bool(urllib.request.urlopen(f"{self.url}/health", timeout=5).status == 200)
        return False

    def metric(self, name: str) -> dict[str, float]:
        """Return the values of one of its metrics, by rank."""
        page = urllib.request.urlopen(f"{self.url}/metrics", timeout=30).read().decode()
        found = re.findall(rf'^{name}{{[^}}]*engine="(\d+)"[^}}]*}} (\S+)$', page, re.MULTILINE)
        return {rank: float(value) for rank, value in found}

    def stop(self) -> None:
        """End it as an operator does, and after a while as nobody should."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End all of its processes at once, as a machine that loses power would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
