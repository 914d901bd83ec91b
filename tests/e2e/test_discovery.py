"""Workers that are found: the whole router follows a file, and a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.e2e.processes import fleet, joined, router
from tests.fleet.discovery.api_server import api_server, pod
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from pathlib import Path

BODY = {"model": "stand-in", "prompt": [1, 2, 3], "max_tokens": 2}


async def urls(client: httpx2.AsyncClient) -> list[str]:
    return [row["url"] for row in (await client.get("/workers")).json()["workers"]]


async def test_workers_of_a_file_are_followed_while_requests_go_on(tmp_path: Path) -> None:
    path = tmp_path / "workers.json"
    async with fleet(count=2) as workers:
        one, two = (worker["url"] for worker in workers.workers)
        path.write_text(json.dumps([one]))
        async with (
            router([], "--worker-file", str(path)) as front,
            httpx2.AsyncClient(base_url=front.url, timeout=30.0) as client,
        ):
            await joined(client, 1)
            path.write_text(json.dumps([one, two]))
            await joined(client, 2)
            path.write_text(json.dumps([two]))

            async def left() -> bool:
                assert (await client.post("/v1/completions", json=BODY)).status_code == 200
                return await urls(client) == [two]

            await until_awaited(left, "the first worker has left")


async def test_pods_of_a_cluster_are_followed() -> None:
    async with fleet(count=1) as workers, api_server() as api:
        port = int(workers.workers[0]["url"].rpartition(":")[2])
        api.put(pod("u1", "127.0.0.1", port, labels={"name": "small"}))
        options = ["--discover", "kubernetes", "--kubernetes-api", api.url, "--kubernetes-namespace", "ns"]
        options += ["--kubernetes-selector", "app=vllm", "--kubernetes-model-label", "name"]
        async with (
            router([], *options) as front,
            httpx2.AsyncClient(base_url=front.url, timeout=30.0) as client,
        ):
            await joined(client, 1)
            assert (await client.post("/v1/completions", json=BODY | {"model": "small"})).status_code == 200
            api.delete("u1")

            async def gone() -> bool:
                return await urls(client) == []

            await until_awaited(gone, "the pod is gone")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--worker-file", "nowhere"], "nowhere: cannot be read: No such file or directory"),
        (["--discover", "kubernetes"], "expected --kubernetes-selector"),
        (["--discover", "kubernetes", "--kubernetes-selector", "a"], "expected --kubernetes-api URL"),
        (["--discover", "consul"], "--discover: expected one of off, kubernetes, got 'consul'"),
    ],
)
async def test_what_cannot_be_followed_is_one_line_at_the_start(options: list[str], expected: str) -> None:
    with pytest.raises(AssertionError) as caught:
        async with router([], *options):
            pass
    assert expected in str(caught.value)
    assert "Traceback" not in str(caught.value)
