"""Bodies full of token ids: the same request as decoded at once, but never at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import BadRequest
from router.prompts import decoding
from router.prompts.large import parse_large
from router.prompts.request import Kind, parse

IDS = list(range(100, 60_100))


def encoded(**body: Any) -> bytes:
    return json.dumps({"model": "m", "stream": True, **body}).encode()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.COMPLETIONS, {"prompt": IDS, "echo": True}),
        (Kind.COMPLETIONS, {"prompt": [IDS, [5], IDS[:9]]}),
        (Kind.COMPLETIONS, {"prompt": "x" * 200_000}),
        (Kind.COMPLETIONS, {"prompt": ["x" * 200_000, "y"]}),
        (Kind.GENERATE, {"input_ids": IDS}),
        (Kind.GENERATE, {"input_ids": [[1], IDS]}),
        (Kind.GENERATE, {"text": "x" * 200_000}),
        (Kind.CHAT, {"messages": [{"role": "user", "content": "x" * 200_000}]}),
    ],
)
async def test_it_is_the_request_that_decoding_at_once_gives(kind: Kind, body: dict[str, Any]) -> None:
    data = encoded(**body)
    request, expected = await parse_large(kind, data), parse(kind, data)
    assert (request.prompt, request.rest, request.index) == (expected.prompt, expected.rest, expected.index)
    assert (request.model, request.stream, request.size) == ("m", True, len(data))


async def test_others_run_in_between() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await parse_large(Kind.COMPLETIONS, encoded(prompt=IDS))
    task.cancel()
    assert turns >= len(json.dumps(IDS)) // decoding.PIECE_BYTES


@pytest.mark.parametrize(
    "prompt",
    [
        "[1, -2]",
        "[1, 2.5]",
        "[1, 4294967296]",
        '[1, "a"]',
        "[[1], 2]",
        "[[1], [2, null]]",
        "[[], [1]]",
        "[[1], []]",
        "[1, [2]]",
        "[[[1]]]",
    ],
)
async def test_ids_that_are_none_are_refused_with_the_field(prompt: str) -> None:
    body = b'{"prompt": %s, "model": "m"}' % prompt.encode()
    with pytest.raises(BadRequest) as caught:
        await parse_large(Kind.COMPLETIONS, body)
    assert caught.value.param == "prompt"


async def test_a_body_that_is_no_json_is_refused() -> None:
    for body in (
        b'{"prompt": [1, 2',
        b'{"prompt": [1, 2,]}',
        b"[" * 100_000,
        b'{"prompt": [1], "stream": 5}',
    ):
        with pytest.raises(BadRequest):
            await parse_large(Kind.COMPLETIONS, body)


@given(
    ids=st.lists(st.integers(0, 2**32 - 1), min_size=1)
    | st.lists(st.lists(st.integers(0, 99), min_size=1), min_size=1),
    separators=st.sampled_from([(",", ":"), (" , ", " : "), (",\n\t", ":")]),
    piece=st.integers(1, 40),
)
@settings(max_examples=100, deadline=None)
def test_wherever_it_is_cut_the_ids_are_the_same(
    ids: list[Any], separators: tuple[str, str], piece: int
) -> None:
    body = json.dumps({"prompt": ids}, separators=separators).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "PIECE_BYTES", piece)
        request = asyncio.run(parse_large(Kind.COMPLETIONS, body))
    expected = parse(Kind.COMPLETIONS, body)
    assert (request.prompt, list(request.rest)) == (expected.prompt, list(expected.rest))
