"""Prometheus itself, in front of a running router: it reads what it gets, and its rules see what happens."""

from __future__ import annotations

import asyncio
import re
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import yaml

from tests.e2e.processes import both
from tests.monitoring.known import PROMETHEUS
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_LISTENING = re.compile(rb'msg="Listening on" address=(\S+)')


@asynccontextmanager
async def prometheus(target: str, directory: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Run it with the configuration of deploy/prometheus, only faster, and return a client of its queries."""
    program = shutil.which("prometheus")
    assert program, "prometheus is missing: install Debian's package prometheus"
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = dict.fromkeys(("scrape_interval", "evaluation_interval", "scrape_timeout"), "1s")
    config["rule_files"] = [str(PROMETHEUS / "rules" / "*.yml")]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    options = {"config.file": directory / "prometheus.yml", "storage.tsdb.path": directory / "data"}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    process = await asyncio.create_subprocess_exec(
        program, *arguments, "--web.listen-address=127.0.0.1:0", stderr=asyncio.subprocess.PIPE
    )
    try:
        address = await _listening(process)
        async with httpx2.AsyncClient(base_url=f"http://{address}", timeout=30.0) as client:
            yield client
    finally:
        process.terminate()
        await process.communicate()


async def _listening(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    log = b""
    while line := await process.stderr.readline():
        log += line
        if found := _LISTENING.search(line):
            return found[1].decode()
    raise AssertionError(log.decode())


async def ask(client: httpx2.AsyncClient, query: str) -> list[float]:
    """Return the values that a query has now."""
    reply = (await client.get("/api/v1/query", params={"query": query})).json()
    return [float(each["value"][1]) for each in reply["data"]["result"]]


async def test_prometheus_reads_a_scrape_and_its_rules_see_workers_die(tmp_path: Path) -> None:
    async with (
        both(count=2) as (workers, front, client),
        prometheus(front.url.removeprefix("http://"), tmp_path) as watch,
    ):
        await client.post("/v1/completions", json={"model": "stand-in", "prompt": [1] * 64})

        async def counted() -> bool:
            sums = await ask(watch, 'sum(kv_router_requests_total{model="stand-in"})')
            return sums == [1] == await ask(watch, 'up{job="kv-router"}')

        await until_awaited(counted, "the request in Prometheus")
        (stored,) = await ask(watch, "scrape_samples_post_metric_relabeling")
        shown = [line for line in (await client.get("/metrics")).text.splitlines() if line[0] != "#"]
        assert abs(stored - len(shown)) < 0.1 * len(shown)
        assert await ask(watch, 'ALERTS{severity="page"}') == []
        workers.kill()

        async def alerted() -> bool:
            failed = await ask(watch, 'count(ALERTS{alertname="KvRouterWorkerFailed"})')
            return failed == [2] and await ask(watch, 'ALERTS{alertname="KvRouterNoReadyWorker"}') == [1]

        await until_awaited(alerted, "the alerts")
