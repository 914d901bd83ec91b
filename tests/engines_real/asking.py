"""One request through the router, with what the router says of it and what the engine does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2

from tests.engines_real.engine import BLOCK_SIZE
from tests.engines_real.model import NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True, slots=True)
class Asked:
    """`exact`, `counted`: the router's tokens of the prompt; `overlap`: what it expected to be cached.

    `prompt_tokens` and `cached` are the engine's usage; `text` and `ids` what it has generated (ids only
    where they were asked for).
    """

    worker: str
    rank: int
    exact: bool
    counted: int
    overlap: int
    prompt_tokens: int
    cached: int
    text: str
    ids: tuple[int, ...]


def calling(url: str) -> httpx2.AsyncClient:
    """Return a client whose every request has a connection of its own.

    On a machine that is busy a server lets go of a connection in the moment in which it is used again.
    """
    return httpx2.AsyncClient(base_url=url, timeout=120.0, limits=httpx2.Limits(max_keepalive_connections=0))


async def ask(
    client: httpx2.AsyncClient, body: dict[str, Any], headers: dict[str, str] | None = None
) -> Asked:
    """Send a chat or a completion, asking for its explanation first; it must be answered well."""
    body = {"model": NAME, "max_tokens": 8, "temperature": 0, "ignore_eos": True} | body
    if body.get("stream"):
        body["stream_options"] = {"include_usage": True}
    path = CHAT if "messages" in body else COMPLETION
    explained = await explain(client, body)
    answer = await client.post(path, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    pieces = _events(answer.text) if body.get("stream") else [answer.json()]
    assert any(piece.get("usage") for piece in pieces), answer.text
    [usage] = [piece["usage"] for piece in pieces if piece.get("usage")]
    choices = [choice for piece in pieces for choice in piece["choices"]]
    return Asked(
        worker=answer.headers["x-kv-router-worker"],
        rank=int(answer.headers["x-kv-router-rank"]),
        exact=explained["exact"],
        counted=explained["prompt_tokens"],
        overlap=int(answer.headers["x-kv-router-overlap-tokens"]),
        prompt_tokens=usage["prompt_tokens"],
        cached=usage["prompt_tokens_details"]["cached_tokens"],
        text="".join(map(_text, choices)),
        ids=tuple(token for choice in choices for token in choice.get("token_ids") or ()),
    )


async def explain(client: httpx2.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    """Return what the router would do with a body."""
    answer = await client.post("/explain", json={"model": NAME} | body)
    assert answer.status_code == 200, answer.text
    explained: dict[str, Any] = answer.json()
    return explained


async def claims(client: httpx2.AsyncClient, body: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Return how many tokens of a prompt the router believes to be cached, by worker and rank."""
    rows = (await explain(client, body))["candidates"]
    return {
        (row["worker"], row["rank"]): sum(row["overlap_tokens"].values()) + row["predicted_tokens"]
        for row in rows
    }


async def are_claimed(client: httpx2.AsyncClient, body: dict[str, Any], tokens: int) -> bool:
    """Whether the router believes that some rank has so many tokens of a prompt cached."""
    return max((await claims(client, body)).values()) == tokens


async def claimed(client: httpx2.AsyncClient, prompts: Sequence[list[int]]) -> list[int]:
    """Return how many tokens of each prompt the router believes to be cached, by all ranks together."""
    return [sum((await claims(client, {"prompt": prompt})).values()) for prompt in prompts]


async def nothing_claimed(client: httpx2.AsyncClient, prompts: Sequence[list[int]]) -> bool:
    """Whether the router believes that no rank has anything of these prompts."""
    return not any(await claimed(client, prompts))


async def store(url: str, prompts: Sequence[list[int]], rank: int = 0, answer: int = 2) -> list[list[int]]:
    """Have a rank of an engine compute prompts, all at once, without the router: as other clients do.

    Returns what it has answered to each, so many tokens.
    """
    pinned = {"x-data-parallel-rank": str(rank)}
    common = {
        "model": NAME,
        "max_tokens": answer,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    bodies = [common | {"prompt": prompt} for prompt in prompts]
    async with calling(url) as client:
        calls = (client.post(COMPLETION, json=body, headers=pinned) for body in bodies)
        answers = await asyncio.gather(*calls)
    assert {each.status_code for each in answers} == {200}, answers[0].text
    return [each.json()["choices"][0]["token_ids"] for each in answers]


def usable(tokens: int) -> int:
    """Return what an engine can find cached of a prompt that it holds wholly: the last token never is."""
    return (tokens - 1) // BLOCK_SIZE * BLOCK_SIZE


def _events(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def _text(choice: dict[str, Any]) -> str:
    said = choice.get("text")
    if said is None:
        said = choice.get("message", choice.get("delta", {})).get("content")
    return said or ""
