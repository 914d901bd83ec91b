"""From a body to a plan: what is read anew, and what is known from before."""

from __future__ import annotations

import dataclasses
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from router.api.planner import Planner
from router.core.cost import POLICIES
from router.core.wish import Wish
from router.engines.description import Description
from router.fleet.fleet import Fleet
from router.fleet.limits import ViewLimits
from router.fleet.spec import parse_worker
from router.fleet.worker import WorkerState
from router.observe.metrics import Metrics
from router.prompts.reader import PromptReader
from router.prompts.request import Kind
from router.prompts.store import TokenizerStore
from router.proxy.limits import Limits
from tests.prompts import models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WISH = Wish(POLICIES["kv"])
TEMPLATE = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello there"}]}).encode()


class Bench:
    """A planner with one worker, and how often it has read a prompt."""

    def __init__(self, path: str) -> None:
        unknown = {field.name: None for field in dataclasses.fields(Description)}
        known = {"engine": "vllm", "model": "m", "aliases": (), "adapters": {}, "block_size": 4, "dp": 1}
        more = {"sources": (None,), "why_no_events": "", "bigram": False, "role": "both"}
        self.said = Description(**{**unknown, **known, **more, "tokenizer_path": path})  # type: ignore[arg-type] # the rest is not looked at
        self.tokenizers = TokenizerStore(None)
        limits = ViewLimits(
            predicted_ttl=30.0, approximate_ttl=600.0, predicted_bound=1000, replay_seconds=1.0
        )
        self.fleet = Fleet(
            (parse_worker("http://127.0.0.1:1"),),
            upstream_limits=Limits(),
            view_limits=limits,
            probe_seconds=60.0,
            prepare=self.tokenizers.prepare,
        )
        self.metrics = Metrics()
        self.planner = Planner(self.fleet, PromptReader(), self.tokenizers, self.metrics)

    @property
    def reads(self) -> int:
        return sum(self.metrics.stages["tokenize"].counts)


@asynccontextmanager
async def bench(path: Path, template: str = TEMPLATE) -> AsyncIterator[Bench]:
    made = Bench(models.byte_level(path, chat_template=template))
    await made.tokenizers.prepare(made.said)
    for worker in made.fleet.workers.values():
        worker.adopt(made.said)
        worker.become(WorkerState.READY)
    try:
        yield made
    finally:
        await made.tokenizers.close()
        await made.fleet.close()


async def test_a_body_that_comes_again_and_again_is_read_twice_and_planned_alike(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        first, _, again = [await made.planner.plan(Kind.CHAT, CHAT, WISH) for _ in range(3)]
        assert made.reads == 2
        assert again.prompt.tokens == first.prompt.tokens != b""
        assert (again.exact, again.why, again.body) == (first.exact, first.why, first.body)


async def test_what_was_read_is_not_used_once_the_counts_of_its_model_are_wrong(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        plan, _ = [await made.planner.plan(Kind.CHAT, CHAT, WISH) for _ in range(2)]
        for _ in range(3):
            made.planner.learn(plan, plan.prompt.count + 1)
        assert (await made.planner.plan(Kind.CHAT, CHAT, WISH)).prompt.tokens == b""
        assert made.reads == 3


async def test_a_template_that_asks_for_the_time_is_rendered_each_time(tmp_path: Path) -> None:
    async with bench(tmp_path, '{{ strftime_now("%Y") }}' + TEMPLATE) as made:
        for _ in range(3):
            await made.planner.plan(Kind.CHAT, CHAT, WISH)
        assert made.reads == 3


@pytest.mark.parametrize("bad", [b"{", b'{"messages": []}'])
async def test_what_cannot_be_read_is_not_kept(tmp_path: Path, bad: bytes) -> None:
    async with bench(tmp_path) as made:
        for _ in range(2):
            with pytest.raises(Exception, match=r"messages|JSON|truncated"):
                await made.planner.plan(Kind.CHAT, bad, WISH)
