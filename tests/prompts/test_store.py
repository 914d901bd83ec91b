"""Where a model's tokenizer comes from, and the mode that a model runs in."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from router.engines.description import Description
from router.errors import ConfigError
from router.prompts.inexact import Inexact
from router.prompts.request import Kind, parse
from router.prompts.store import TokenizerStore
from tests.prompts import models
from tests.prompts.tokenising import worker
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

KEY = ("m", "vllm")
NO_HUB = "nobody/no-such-model"


def said(path: str | None) -> Description:
    fields = {field.name: None for field in dataclasses.fields(Description)}
    return Description(**{**fields, "engine": "vllm", "model": "m", "tokenizer_path": path})  # type: ignore[arg-type] # only what the store reads


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


async def test_the_library_that_serves_a_model_is_its_mode(tmp_path: Path) -> None:
    store = TokenizerStore(None)
    await store.prepare(said(models.byte_level(tmp_path)))
    assert store.mode(*KEY) == ("fastokens", "")
    await store.close()


async def test_without_a_tokenizer_the_mode_is_text_until_a_worker_answers(tmp_path: Path) -> None:
    store = TokenizerStore(None, deadline=5)
    await store.prepare(said(str(tmp_path / "none")))
    mode, why = store.mode(*KEY)
    assert mode == "text"
    assert "is not a file" in why
    request = parse(Kind.COMPLETIONS, b'{"prompt": "x"}')
    async with worker(lambda _: (200, {"tokens": [1]})) as upstream:
        await store.remote.prompt(KEY, upstream.url, upstream, request)
    assert store.mode(*KEY)[0] == "worker"
    async with worker(lambda _: (500, {})) as upstream:
        with pytest.raises(Inexact):
            await store.remote.prompt(KEY, upstream.url, upstream, request)
    mode, why = store.mode(*KEY)
    assert mode == "text"
    assert "with 500" in why
    await store.close()


async def test_a_model_whose_worker_says_other_ids_is_distrusted(tmp_path: Path) -> None:
    store = TokenizerStore(models.byte_level(tmp_path, chat_template="{{ messages[0].content }}"))
    asked = 0

    def answer(_: dict[str, Any]) -> tuple[int, Any]:
        nonlocal asked
        asked += 1
        return 200, {"tokens": [1]}

    async with worker(answer) as upstream:
        for _ in range(3):
            await store.prepare(said(None), upstream)
        await until(lambda: not store.check.trusts(*KEY), "the model is distrusted")
        assert store.mode(*KEY)[0] == "distrusted"
        await store.close()
    assert asked == 3


async def test_a_hub_name_is_fetched_in_the_background_and_refused_offline_with_the_reason() -> None:
    store = TokenizerStore(NO_HUB)
    await store.prepare(said(None))
    assert store.get(*KEY) is None
    await until(lambda: "cannot be fetched from the hub" in store.mode(*KEY)[1], "the hub has been asked")
    assert "\n" not in store.mode(*KEY)[1]
    await store.close()


async def test_a_model_in_the_hubs_cache_is_loaded_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    models.byte_level(snapshot)
    (tmp_path / "models--org--name" / "refs").mkdir()
    (tmp_path / "models--org--name" / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    store = TokenizerStore(None)
    await store.prepare(said("org/name"))
    await until(lambda: store.get(*KEY) is not None, "the model is loaded")
    assert store.mode(*KEY) == ("fastokens", "")
    await store.close()


def test_a_path_that_the_operator_gives_is_checked_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a file"):
        TokenizerStore(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text(json.dumps({}))
    with pytest.raises(ConfigError, match="cannot be loaded"):
        TokenizerStore(str(tmp_path))
