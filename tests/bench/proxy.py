"""CPU per request, beside the barest proxy that uvicorn can run.

`KV_ROUTER_PEERBENCH` names the directory that holds peerbench.py, its C dummy worker and bare_proxy.py; wrk,
cc and taskset are needed too. The proxies run in turn on one core, the load and the workers on the other:
compare ratios within one run. "parts" is the least that can be made of router.proxy (read the body, ask a
worker, relay); "round_robin" and "kv" are the whole router with that policy.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import uvicorn

from router.proxy.body import BodyBudget, body_of
from router.proxy.disconnect import ClientGone, ClientWatch
from router.proxy.edge import EdgeProtocol
from router.proxy.relay import relay
from router.proxy.upstream import Upstream

if TYPE_CHECKING:
    from router.proxy.asgi import Receive, Scope, Send
    from router.proxy.cycle import Cycle, Handler

ROOT = Path(__file__).parents[2]
ROUNDS = 3
BODY_BYTES = 1 << 20


class Parts:
    """Pass every request to the next worker."""

    def __init__(self, workers: list[str]) -> None:
        self._upstreams = itertools.cycle([Upstream(url) for url in workers])
        self._bodies = BodyBudget()

    def handler(self, _method: bytes, _path: str) -> Handler:
        """Serve every path."""
        return self._serve

    async def _serve(self, cycle: Cycle) -> None:
        body = await body_of(cycle, BODY_BYTES, self._bodies)
        self._bodies.give_back(len(body))
        fields, _ = cycle.sender.onward(cycle.headers)
        with contextlib.suppress(ClientGone), ClientWatch(cycle):
            response = await next(self._upstreams).request(cycle.method, cycle.target, fields, body)
            await relay(response, cycle)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve nothing as ASGI: uvicorn looks for this."""


def serve(port: int, workers: list[str]) -> None:
    """Run the parts."""
    uvicorn.run(
        Parts(workers),
        port=port,
        http=EdgeProtocol,
        loop="uvloop",
        lifespan="off",
        access_log=False,
        log_level="error",
        proxy_headers=False,
    )


def _routers(bench: Path) -> list[str]:
    """Return peerbench's --router arguments: a name and a command with {port}, {w1} and {w2}."""
    python = sys.executable
    server = "--loop uvloop --http httptools --no-access-log --log-level error"
    bare = f"bare={python} -m uvicorn bare_proxy:app --app-dir {bench} --port {{port}} {server}"
    parts = f"parts={python} -m tests.bench.proxy {{port}} {{w1}} {{w2}}"
    whole = [
        f"{policy}={python} -m router serve --port {{port}} --worker {{w1}} --worker {{w2}} --policy {policy}"
        for policy in ("round_robin", "kv")
    ]
    return [part for router in (bare, parts, *whole) for part in ("--router", router)]


def _measure(bench: Path) -> list[dict[str, float | str | bool]]:
    with tempfile.TemporaryDirectory() as scratch:
        rows = Path(scratch) / "rows"
        command = [sys.executable, str(bench / "peerbench.py"), "--json", str(rows), "--conc", "32,256"]
        command += ["--rounds", str(ROUNDS), "--seconds", "2", *_routers(bench)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line) for line in rows.read_text().splitlines()]


def main() -> None:
    """Print medians of CPU microseconds per request, and their ratio to the bare proxy's."""
    bench = os.environ.get("KV_ROUTER_PEERBENCH")
    missing = [tool for tool in ("wrk", "cc", "taskset") if shutil.which(tool) is None]
    if bench is None or missing:
        print("proxy: needs KV_ROUTER_PEERBENCH=directory of peerbench.py, and wrk, cc, taskset")
        return
    cases: dict[tuple[str, bool, int], list[float]] = defaultdict(list)
    for row in _measure(Path(bench)):
        cases[str(row["router"]), bool(row["stream"]), int(row["conc"])].append(float(row["cpu_us_per_req"]))
    print(f"proxy: CPU us per request, medians of {ROUNDS}")
    for (name, stream, conc), values in cases.items():
        base, here = median(cases["bare", stream, conc]), median(values)
        kind = "64-chunk stream" if stream else "200-token chat"
        ratio = f"x{here / base:.2f}" if base else "too short a run to tell"
        print(f"  {name:12}{kind:16}c={conc:<4}{here:8.1f}  {ratio}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(int(sys.argv[1]), sys.argv[2:])
    else:
        main()
