"""What clients say, and what they are known by, is in no log, no record and no span."""

from __future__ import annotations

import zlib
from struct import Struct, pack
from typing import TYPE_CHECKING

import httpx2
import msgspec
import pytest

from router.records.format import MAGIC
from router.records.replay import replay
from tests.e2e.collector import collector
from tests.e2e.processes import fleet, joined, router
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

CLIENT_KEY, WORKER_KEY, ADMIN_KEY = "sk-client-0123456789", "sk-worker-0123456789", "sk-admin-0123456789"
TEXT, SALT = "the quick secret fox", "tenant-of-the-salt"
TOKENS = [70_001 + 7 * index for index in range(80)]
_HEAD = Struct(">II")


def unpacked(directory: Path) -> bytes:
    """Return what is in all blocks of a record, without knowing what it means."""
    found = b""
    for data in (path.read_bytes() for path in directory.iterdir()):
        at = len(MAGIC)
        while at < len(data):
            length, _ = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            found += zlib.decompress(data[at - length : at])
    return found


def forms(tokens: list[int]) -> list[bytes]:
    """Return how token ids could be written: as words of either order, in MessagePack, in JSON."""
    packed = [pack(f"{order}{len(tokens)}I", *tokens) for order in "<>"]
    return [*packed, msgspec.msgpack.encode(tokens)[1:], ", ".join(map(str, tokens)).encode()]


def secrets() -> list[bytes]:
    said = [word.encode() for word in (CLIENT_KEY, WORKER_KEY, ADMIN_KEY, TEXT, SALT)]
    runs = [TOKENS[at : at + 3] for at in range(0, len(TOKENS) - 3, 16)]
    return said + [form for run in runs for form in forms(run)]


async def ask(client: httpx2.AsyncClient) -> None:
    """Send prompts in every form, good and bad, each with something that must not be told."""
    chat = {"messages": [{"role": "user", "content": TEXT}]}
    for path, body in (
        ("/v1/completions", {"prompt": TOKENS, "cache_salt": SALT}),
        ("/v1/completions", {"prompt": TOKENS, "cache_salt": SALT}),
        ("/v1/completions", {"prompt": TEXT * 20}),
        ("/v1/chat/completions", chat),
        ("/v1/responses", {"input": TEXT}),
        ("/v1/chat/completions", chat | {"messages": [{"role": "user", "content": [TEXT]}]}),
        ("/v1/completions", {"prompt": {"wrong": TEXT}}),
        ("/v1/completions", {"prompt": TOKENS, "model": "another"}),
    ):
        await client.post(path, json={"model": "stand-in", "max_tokens": 2} | body)
    await client.post("/v1/completions", content=TEXT.encode())
    await client.post("/v1/completions", json={"prompt": TEXT}, headers={"authorization": "Bearer " + TEXT})
    await client.post("/v1/completions?key=" + CLIENT_KEY, json={"prompt": TEXT, "model": "stand-in"})


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_nothing_that_clients_say_is_kept(tmp_path: Path, engine: str) -> None:
    async with fleet("--engine", engine, count=2) as workers, collector() as found:
        urls = [worker["url"] for worker in workers.workers]
        options = (
            *("--record", str(tmp_path), "--otlp", found.url, "--log-requests", "1"),
            *("--log-level", "debug", "--log-format", "json", "--api-key", CLIENT_KEY),
            *("--worker-api-key", WORKER_KEY, "--admin-key", ADMIN_KEY),
        )
        bearer = {"authorization": f"Bearer {CLIENT_KEY}"}
        async with (
            router(urls, *options) as front,
            httpx2.AsyncClient(base_url=front.url, headers=bearer, timeout=30) as client,
        ):
            await joined(client, 2)
            await ask(client)
            await client.post("/admin/weight_sync", json={}, headers={"authorization": f"Bearer {ADMIN_KEY}"})
        await until(lambda: found.spans, "spans")
    log = b"".join(front.log)
    kept = unpacked(tmp_path)
    assert log.count(b'"event": "request"') >= 10
    assert b"stand-in" in kept
    for secret in secrets():
        for where in (log, kept, *found.bodies):
            assert secret not in where, secret
    (replayed,) = replay(str(tmp_path), [])
    assert replayed.differences == []
    assert sum(sum(row.blocks.values()) for row in replayed.views) == 0  # the sync has emptied them
    assert replayed.batches > 0
