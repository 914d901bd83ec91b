"""The demo from beginning to end."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from router.errors import UpstreamFailed
from router.proxy.fetch import fetch
from router.proxy.upstream import Upstream
from workers.demo.processes import DemoError, fleet, router
from workers.demo.report import Progress, compare, say, tell_sync
from workers.demo.sync import weight_sync
from workers.demo.traffic import Sample, Workload, run

if TYPE_CHECKING:
    from collections.abc import Sequence

_COUNT = 4
_OPTIONS = ("--profile", "8b-h100", "--capacity-tokens", "60000")
_TIMEOUT = 30.0


async def demo(*, keep: bool) -> bool:
    """Run it; say whether everything held. Raises DemoError when something could not be started.

    A signal ends it with its processes, as Ctrl-C does.
    """
    running = asyncio.current_task()
    assert running is not None  # noqa: S101 - a coroutine runs in a task
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, running.cancel)
    try:
        return await _show(keep=keep)
    except asyncio.CancelledError:
        say("\nStopped.")
        return False


async def _show(*, keep: bool) -> bool:
    workload = Workload()
    say(f"Starting {_COUNT} stand-in workers (SGLang dialect, real ZMQ publishers, timed like an 8B model).")
    async with fleet(_COUNT, *_OPTIONS) as rows:
        workers = [row["url"] for row in rows]
        runs = {}
        say(f"\nThe same {workload.requests} chat requests under two policies:")
        for policy in ("round_robin", "kv"):
            runs[policy] = await _run(workers, policy, workload)
        say()
        compare(runs, workers)
        async with router(workers, "kv") as client:
            say("\nA weight sync under traffic: each worker is paused, flushed and continued in turn.")
            try:
                report = await weight_sync(client, workers, workload)
            except (UpstreamFailed, RuntimeError, TimeoutError) as error:
                raise DemoError(f"the weight sync failed: {error}") from error
            tell_sync(report)
            if keep:
                await _stay(client, workers)
    return not report.stale()


async def _run(workers: Sequence[str], policy: str, workload: Workload) -> list[Sample]:
    """Run the traffic through a router of its own, with empty caches."""
    for url in workers:
        worker = Upstream(url)
        await fetch(worker, "POST", "/flush_cache", timeout=_TIMEOUT)
        await worker.close()
    async with router(workers, policy) as client:
        try:
            return await run(client, workload, Progress(policy, workload.requests))
        except (UpstreamFailed, RuntimeError) as error:
            raise DemoError(f"the traffic failed: {error}") from error


async def _stay(client: Upstream, workers: Sequence[str]) -> None:
    """Leave everything up until Ctrl-C."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    say("\nEverything stays up; Ctrl-C ends it.")
    say(f"  router   {client.url}  (/workers, /explain, /metrics, /v1/models)")
    for url in workers:
        say(f"  worker   {url}")
    say(f"  look     open {client.url}/ in a browser, or: kv-router top --url {client.url}")
    say("  try      curl -s " + client.url + "/workers")
    say(
        f"           curl -s {client.url}/v1/completions -H 'content-type: application/json' "
        """-d '{"model": "stand-in", "prompt": "Hello", "max_tokens": 16}' -i"""
    )
    await stopped.wait()
