"""How workers are reached that need a key of their own, or have certificates of a private authority."""

from __future__ import annotations

from pathlib import Path

import httpx2

from router.proxy.tls import TlsFiles, server_context
from tests.e2e.processes import joined, router
from tests.e2e.scripted import engine_up, posts
from tests.proxy.scripted import answer, plays

FILES = Path(__file__).parents[1] / "fixtures" / "tls"
BODY = b'{"model": "stand-in", "prompt": [1, 2, 3]}'
OK = plays(answer(b"{}"))


async def test_a_worker_gets_its_own_key_with_everything_and_never_a_clients() -> None:
    options = ("--worker-api-key", "key-of-the-worker")
    async with engine_up(OK) as worker, router([worker.url], *options) as front:
        theirs = {"authorization": "Bearer of-the-client", "x-api-key": "of-the-client"}
        async with httpx2.AsyncClient(base_url=front.url, headers=theirs) as client:
            await joined(client, 1)
            assert (await client.post("/v1/completions", content=BODY)).content == b"{}"
        assert len(posts(worker)) == 1
        assert len(worker.requests) > 2
        for _, head, _ in worker.requests:
            assert head.count(b"\r\nauthorization: Bearer key-of-the-worker\r\n") == 1
            assert b"of-the-client" not in head


async def test_workers_with_certificates_of_a_private_authority_are_verified_by_it() -> None:
    tls = server_context(TlsFiles(str(FILES / "localhost.pem"), str(FILES / "localhost.key")))
    async with engine_up(OK, tls=tls) as worker:
        for name, reached in (("localhost", True), ("other", False)):
            authority = str(FILES / f"{name}.pem")
            async with (
                router([worker.url], "--worker-ca", authority) as front,
                httpx2.AsyncClient(base_url=front.url) as client,
            ):
                if reached:
                    await joined(client, 1)
                got = await client.post("/v1/completions", content=BODY)
                assert got.status_code == (200 if reached else 503)
