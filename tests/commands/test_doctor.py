"""What the doctor finds in real workers that are told to misbehave, and in routers before them."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from router.commands.checkup import Checkup, Means
from router.fleet.spec import parse_worker
from tests.commands.running import command
from tests.e2e.asking import rows
from tests.e2e.processes import joined, router
from tests.proxy.scripted import Worker, answer, plays
from tests.waiting import until_awaited
from workers.faults import Faults
from workers.fleet import Fleet
from workers.publisher import PublisherConfig
from workers.spec import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from router.commands.findings import Finding
    from tests.proxy.scripted import Peer

SOUND = {"reachable", "tokenizer", "requests", "cache report", "events", "block size", "clock", "replay"}
NO_REPLAY = PublisherConfig(replay_port=None)
KEY = "sk-0123456789"


async def doctor(*arguments: str, key: str = "") -> tuple[int, dict[str, dict[str, dict[str, str]]]]:
    """Return the exit code, and the findings by subject and check."""
    ended = await command("doctor", "--json", *arguments, KV_ROUTER_KEY=key)
    assert ended.err == ""
    said = json.loads(ended.out)
    assert said["ok"] is (ended.code == 0)
    found: dict[str, dict[str, dict[str, str]]] = {}
    for one in said["findings"]:
        assert bool(one["cure"]) is (one["level"] != "ok"), one
        found.setdefault(one["subject"], {})[one["check"]] = one
    return ended.code, found


async def checked(spec: str, **means: Any) -> dict[str, Finding]:
    """Return what is found in one worker, in this process, by check."""
    found = await Checkup(parse_worker(spec), Means(**means)).run()
    return {one.check: one for one in found}


@asynccontextmanager
async def worker(**spec: Any) -> AsyncIterator[str]:
    async with Fleet([WorkerSpec(**spec)]) as fleet:
        yield fleet.workers[0].url


@asynccontextmanager
async def silent_about_events(url: str) -> AsyncIterator[str]:
    """Stand before a vLLM as an older one, which does not say where its events are."""
    async with httpx2.AsyncClient(base_url=url, timeout=30) as behind:

        async def script(peer: Peer) -> None:
            method, target, _ = peer.lines[0].decode().split(" ")
            if target == "/kv_event_sources":
                await peer.send(answer(b"{}", status=b"404 Not Found"))
                return
            kind = {"content-type": "application/json"}
            got = await behind.request(method, target, content=peer.body, headers=kind)
            await peer.send(answer(got.content, status=b"%d x" % got.status_code))

        async with Worker.up(script) as front:
            yield front.url


async def test_nothing_is_wrong_with_sound_workers_of_both_engines() -> None:
    specs = [WorkerSpec(), WorkerSpec(engine="vllm", hash_form="bytes"), WorkerSpec(dp=2, bigram=True)]
    async with Fleet(specs) as fleet:
        urls = [one.url for one in fleet.workers]
        code, found = await doctor(*urls, "--wait", "20")
        assert code == 0
        for url in urls[:2]:
            assert set(found[url]) == SOUND
        assert {f"{urls[2]} rank 0", f"{urls[2]} rank 1"} < set(found)
        assert all(one["level"] == "ok" for checks in found.values() for one in checks.values())
        shown = await command("doctor", urls[0], "--wait", "20")
        assert shown.out.endswith("\nNothing is wrong, 0 notes.\n")
        assert "\x1b" not in shown.out


FAULTS: list[tuple[dict[str, Any], str, str, str, str]] = [
    ({"events": None}, "", "events", "no KV events", "--kv-events-config"),
    ({"engine": "vllm", "events": None}, "", "events", "no KV events", "enable_kv_cache_events"),
    ({"faults": Faults(silent=True)}, "", "events", "nothing came of a request", "publisher lives"),
    ({"faults": Faults(dead=True)}, "", "events", "nothing publishes at tcp://", "has * in it"),
    ({}, ",topic=foo", "events", "nothing with topic 'foo' came", "topic"),
    ({}, ",kv=tcp://127.0.0.1:1", "events", "nothing publishes at tcp://127.0.0.1:1", "port"),
    ({}, ",block-size=32", "block size", "blocks of 16 tokens, expected are 32", "block-size=16"),
    ({"faults": Faults(replay="hangs")}, "", "replay", "no answer to a replay", "replay port"),
    ({"cache_report": False}, "", "cache report", "do not say", "--enable-cache-report"),
    (
        {"engine": "vllm", "cache_report": False},
        "",
        "cache report",
        "do not say",
        "--enable-prompt-tokens-details",
    ),
    ({"faults": Faults(status=500)}, "", "requests", "answers 500", "log"),
    ({"faults": Faults(bad_event=1.0)}, "", "decodable", "events", "update"),
    ({"faults": Faults(bad_batch=1.0)}, "", "events", "not MessagePack", "endpoint"),
]


async def test_each_fault_is_found_with_its_cure() -> None:
    async with Fleet([WorkerSpec(**spec) for spec, *_ in FAULTS]) as fleet:
        texts = [one.url + settings for one, (_, settings, *_) in zip(fleet.workers, FAULTS, strict=True)]
        charts = await asyncio.gather(*(checked(text, seconds=4.0) for text in texts))
    for found, (_, _, check, said, cure) in zip(charts, FAULTS, strict=True):
        assert found["reachable"].level == "ok"
        assert {one.check for one in found.values() if one.level == "wrong"} == {check}, found
        assert said in found[check].said
        assert cure in found[check].cure


@pytest.mark.parametrize(
    ("spec", "check", "said"),
    [
        ({"events": NO_REPLAY}, "replay", "keeps no history"),
        ({"loop": "prefill"}, "trial", "a prefill worker answers no request alone"),
    ],
)
async def test_what_works_all_the_same_is_a_note(spec: dict[str, Any], check: str, said: str) -> None:
    async with worker(**spec) as url:
        found = await checked(url, seconds=10.0)
        assert {one.level for one in found.values()} <= {"ok", "note"}
        assert found[check].level == "note"
        assert said in found[check].said
        assert found[check].cure


async def test_a_paused_worker_is_not_waited_for() -> None:
    async with worker() as url, httpx2.AsyncClient() as client:
        await client.post(f"{url}/pause_generation", json={"mode": "retract"})
        found = await checked(url, seconds=10.0)
        assert found["trial"].said == "the worker is paused"
        assert not any(one.level == "wrong" for one in found.values())


async def test_workers_can_be_left_alone() -> None:
    async with worker() as url, httpx2.AsyncClient() as client:
        found = await checked(url, seconds=10.0, passive=True)
        assert found["events"].said.startswith("connected to tcp://")
        assert not any(one.level == "wrong" for one in found.values())
        truth = (await client.get(f"{url}/_truth")).json()
        assert not truth["ranks"][0]["blocks"]


async def test_another_tokenizer_is_found(tmp_path: Path) -> None:
    other = Tokenizer(WordLevel({"[UNK]": 0, "Hello": 1}, unk_token="[UNK]"))
    other.pre_tokenizer = Whitespace()
    other.save(str(tmp_path / "tokenizer.json"))
    async with worker() as url:
        found = await checked(url, seconds=10.0, tokenizer=str(tmp_path))
        assert found["tokenizer"].level == "wrong"
        assert "the engine counts" in found["tokenizer"].said
        missing = await checked(url, seconds=10.0, tokenizer=str(tmp_path / "none"))
        assert missing["tokenizer"].level == "wrong"


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[1]"])
async def test_what_is_no_engine_is_not_reachable(body: bytes) -> None:
    async with Worker.up(plays(answer(body))) as stranger:
        found = await checked(stranger.url, seconds=5.0)
        assert {name: one.level for name, one in found.items()} == {"reachable": "wrong"}
    assert (await checked("http://127.0.0.1:1"))["reachable"].level == "wrong"


async def test_a_wrong_worker_is_one_line() -> None:
    for text in ("nonsense", "http://a:1,what=1"):
        ended = await command("doctor", text)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.count("\n") == 1


async def test_a_router_is_checked_with_all_its_workers() -> None:
    async with Fleet([WorkerSpec(), WorkerSpec(events=None)]) as fleet:
        urls = [one.url for one in fleet.workers]
        options = ("--api-key", KEY, "--probe-seconds", "0.05")
        async with (
            router([*urls, "http://127.0.0.1:1"], *options) as front,
            httpx2.AsyncClient(base_url=front.url, headers={"x-api-key": KEY}) as client,
        ):
            await joined(client, 2)
            code, found = await doctor("--url", front.url, "--wait", "20", key=KEY)
            assert code == 1
            assert {one["level"] for one in found[front.url].values()} == {"ok"}
            assert set(found[front.url]) == {"reachable", "clock", "ready"}
            sound, silent, gone = (
                found[f"{url} as the router sees it"] for url in (*urls, "http://127.0.0.1:1")
            )
            assert sound["view"]["level"] in {"ok", "note"}
            assert silent["view"]["level"] == "wrong"
            assert gone["state"]["level"] == "wrong"
            assert {one["level"] for one in found[urls[0]].values()} == {"ok"}
            assert found[urls[1]]["events"]["level"] == "wrong"
            assert found["http://127.0.0.1:1"]["reachable"]["level"] == "wrong"
            code, found = await doctor("--url", front.url)
            assert code == 1
            assert "asks for a valid key" in found[front.url]["reachable"]["said"]


async def test_what_works_from_the_router_and_not_from_here_is_a_note() -> None:
    """An old vLLM does not say where its events are; the operator has told the router."""
    async with Fleet([WorkerSpec(engine="vllm")]) as fleet:
        stand_in = fleet.workers[0]
        assert stand_in.endpoints is not None
        async with silent_about_events(stand_in.url) as url:
            told = f"{url},kv=tcp://127.0.0.1:{stand_in.endpoints.port}"
            async with router([told]) as front, httpx2.AsyncClient(base_url=front.url) as client:
                await joined(client, 1)
                body = {"model": "stand-in", "prompt": [5] * 40, "max_tokens": 1}
                await client.post("/v1/completions", json=body)
                await until_awaited(lambda: live(client), "the view is live")
                code, found = await doctor("--url", front.url, "--wait", "20")
                assert found[url]["events"]["level"] == "note"
                assert "from the router it works" in found[url]["events"]["said"]
                assert code == 0


async def live(client: httpx2.AsyncClient) -> bool:
    (row,) = (await rows(client)).values()
    return bool(row["ranks"][0]["view"] == "live")


async def test_a_clock_that_is_off_is_found() -> None:
    seen = {
        "time": time.time() - 3600,
        "version": "1",
        "policy": "kv",
        "totals": dict.fromkeys(("errors", "retries", "waiting", "index_blocks", "index_bytes"), 0),
        "workers": [],
    }
    event = b"data: " + json.dumps(seen).encode() + b"\n\n"
    async with Worker.up(plays(answer(event))) as other:
        code, found = await doctor("--url", other.url)
        assert code == 1
        assert 3600 <= float(found[other.url]["clock"]["said"].split()[0]) < 3700
        assert "behind" in found[other.url]["clock"]["said"]
        assert found[other.url]["ready"]["level"] == "wrong"


async def test_a_router_that_is_not_there_is_a_finding() -> None:
    code, found = await doctor("--url", "http://127.0.0.1:1")
    assert code == 1
    assert found["http://127.0.0.1:1"]["reachable"]["level"] == "wrong"
