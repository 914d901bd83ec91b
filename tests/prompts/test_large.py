"""Bodies full of token ids: the same request as decoded at once, but never at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from time import process_time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import BadRequest
from router.prompts import decoding, large, structure
from router.prompts.fields import Chat
from router.prompts.large import parse_large
from router.prompts.request import Kind, Request, parse
from tests.others import somebody_else

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from router.prompts.reader import PromptReader
    from router.prompts.tokenizer import ChatTokenizer

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
    async with somebody_else() as other:
        await parse_large(Kind.COMPLETIONS, encoded(prompt=IDS))
    assert other.turns >= len(json.dumps(IDS)) // decoding.PIECE_BYTES


@pytest.mark.parametrize("modest", [0, large.MODEST_BYTES])
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
async def test_ids_that_are_none_are_refused_with_the_field(
    monkeypatch: pytest.MonkeyPatch, prompt: str, modest: int
) -> None:
    monkeypatch.setattr(large, "MODEST_BYTES", modest)
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
@settings(max_examples=100)
def test_wherever_it_is_cut_the_ids_are_the_same(
    ids: list[Any], separators: tuple[str, str], piece: int
) -> None:
    body = json.dumps({"prompt": ids}, separators=separators).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "MODEST_BYTES", 0)
        patch.setattr(decoding, "PIECE_BYTES", piece)
        request = asyncio.run(parse_large(Kind.COMPLETIONS, body))
    expected = parse(Kind.COMPLETIONS, body)
    assert (request.prompt, list(request.rest)) == (expected.prompt, list(expected.rest))


READ = ("prompt", "text", "input_ids")
"""The fields of which a request says what was in them."""


def kept(request: Request) -> tuple[Any, ...]:
    fields = request.fields
    return (
        request.prompt,
        list(request.rest),
        request.index,
        request.size,
        request.unread,
        [getattr(fields, name) for name in fields.__struct_fields__ if name not in (*READ, "input_embeds")],
        isinstance(fields, Chat),
    )


def outcome_of(read: Callable[[], Request]) -> Any:
    try:
        return kept(read())
    except BadRequest as error:
        return error.param


texts = st.text() | st.just('\\"\\\\') | st.just("\ud83d\ude00é") | st.just('[{,"')
values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["role", "content", "text"]), inner),
)
prompts = (
    texts | st.lists(texts) | st.lists(st.integers(-1, 9)) | st.lists(st.lists(st.integers(0, 9))) | values
)
turns = st.lists(st.fixed_dictionaries({"role": texts, "content": texts | st.lists(texts)}) | values)
fields_ = st.fixed_dictionaries(
    {}, optional={"model": texts | values, "tools": values, "x": values, "cache_salt": texts}
)


@given(
    kind=st.sampled_from([kind for kind in Kind if kind is not Kind.OTHER]),
    prompt=prompts | turns,
    fields=fields_,
    at=st.integers(0, 3),
    ascii_only=st.booleans(),
)
@settings(max_examples=400)
def test_any_body_is_read_as_it_would_be_at_once(
    kind: Kind, prompt: Any, fields: dict[str, Any], at: int, ascii_only: bool
) -> None:
    name = {Kind.COMPLETIONS: "prompt", Kind.GENERATE: "text", Kind.RESPONSES: "input"}.get(kind, "messages")
    items = [*fields.items()]
    items.insert(at, (name, prompt))
    body = json.dumps(dict(items), ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "MODEST_BYTES", 0)
        patch.setattr(decoding, "PIECE_TEXT_BYTES", 64)
        patch.setattr(structure, "STEP_BYTES", 5)
        found = outcome_of(lambda: asyncio.run(parse_large(kind, body)))
    expected = outcome_of(lambda: parse(kind, body))
    if isinstance(expected, tuple):
        assert found == expected
    else:  # which field is named when two are wrong depends on where one begins
        assert isinstance(found, str | None)


@given(value=values, step=st.integers(1, 9), ascii_only=st.booleans())
@settings(max_examples=200)
def test_what_is_outside_of_strings_is_counted(value: Any, step: int, ascii_only: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "STEP_BYTES", step)
        found = asyncio.run(structure.structure_of(raw))
    assert found == counts(value)


def counts(value: Any) -> tuple[int, int]:
    """Return how many lists and objects there are in `value`, and how many commas they need."""
    if not isinstance(value, list | dict):
        return 0, 0
    inner = [counts(each) for each in (value.values() if isinstance(value, dict) else value)]
    return 1 + sum(one for one, _ in inner), max(0, len(value) - 1) + sum(other for _, other in inner)


MANY = large.MAX_VALUES + 1


def _chat(more: bytes, content: bytes = b'"x"') -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":%s}]%s}' % (content, more)


@pytest.mark.parametrize(
    ("kind", "body", "param", "expected"),
    [
        (Kind.CHAT, _chat(b',"x":[%s1]' % (b"1," * MANY)), None, "at most 1,250,000 values"),
        (Kind.CHAT, _chat(b',"x":[%s1]' % (b"{}," * MANY)), None, "at most 1,250,000 values"),
        (Kind.COMPLETIONS, b'{"prompt":[%s"a"]}' % (b'"a",' * 4096), "prompt", "at most 4096 prompts"),
        (Kind.COMPLETIONS, b'{"prompt":[%s[1]]}' % (b"[1]," * 4096), "prompt", "at most 4096 prompts"),
        (Kind.GENERATE, b'{"text":[%s"a"]}' % (b'"a",' * 4096), "text", "at most 4096 prompts"),
        (Kind.CHAT, _chat(b',"x":"\\ud800",' + b"[" * 99_999), None, "not valid JSON"),
        (Kind.CHAT, _chat(b"", b'"%s\\ud800"' % (b"x" * 99_999)), None, "lone surrogate"),
        (
            Kind.CHAT,
            _chat(b"", b"[%s5]" % (b'"a",' * 9_999)),
            "messages",
            "messages[0].content[9999]: expected",
        ),
    ],
)
async def test_too_much_is_refused_both_ways(
    kind: Kind, body: bytes, param: str | None, expected: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        await parse_large(kind, body)
    assert caught.value.param == param
    assert expected in caught.value.message


def test_too_many_prompts_are_refused_in_a_short_body_too() -> None:
    for prompts_ in (["a"] * 4097, [[1]] * 4097):
        with pytest.raises(BadRequest, match="at most 4096 prompts"):
            parse(Kind.COMPLETIONS, encoded(prompt=prompts_))


MEGABYTES = large.MAX_READ_BYTES // 1_000_000 + 1
LONG = b"hello wor " * 100_000 * MEGABYTES


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        (Kind.COMPLETIONS, b'{"model":"m","cache_salt":"s","prompt":"%s"}' % LONG, "prompt is too large"),
        (Kind.CHAT, _chat(b',"cache_salt":"s"', b'"%s"' % LONG), "messages is too large"),
        (
            Kind.CHAT,
            _chat(b',"cache_salt":"s","tools":["%s"]' % LONG),
            "what is beside the prompt is too large",
        ),
        (Kind.CHAT, _chat(b',"cache_salt":"s"', b"[%s{}]" % (b"{}," * 20_000)), "messages is too large"),
        (
            Kind.CHAT,
            _chat(b',"cache_salt":"s","tools":[%s{}]' % (b"{}," * 20_000)),
            "beside the prompt is too",
        ),
        (Kind.CHAT, _chat(b',"cache_salt":"s"', b'"%s"' % (b"\\n" * 600_000)), "a part of messages is too"),
    ],
)
async def test_what_is_too_much_to_be_decoded_is_routed_by_its_size(
    deepseek: ChatTokenizer, reader: PromptReader, kind: Kind, body: bytes, why: str
) -> None:
    request = await parse_large(kind, body)
    assert (request.model, request.cache_salt, request.embedded) == ("m", "s", False)
    assert why in request.unread
    for tokenizer in (deepseek, None):
        prompt = reader.read_now(request, tokenizer)
        assert prompt is not None
        assert (prompt.tokens, prompt.source, prompt.count) == (b"", "none", len(body) // 4)
        assert why in prompt.why


async def test_many_embeddings_are_neither_refused_nor_read() -> None:
    body = b'{"input_embeds":[%s1.5]}' % (b"0.25," * MANY)
    request = await parse_large(Kind.GENERATE, body)
    assert request.embedded


async def test_no_step_of_a_large_body_is_long() -> None:
    """Each kind of body that held the loop for seconds: now no step is a noticeable part of the whole."""
    for body in (
        b'{"prompt":[%s"a"]}' % (b'"a",' * 900_000),
        b'{"prompt":[%s[1]]}' % (b"[1]," * 500_000),
        _chat(b',"x":[%s{}]!' % (b"{}," * 500_000)),
        _chat(b"", b'[%s"x"]' % (b'{"type":"text","text":"x"},' * 100_000)),
    ):
        whole, longest = await _cpu(
            parse_large(Kind.COMPLETIONS if b"prompt" in body[:9] else Kind.CHAT, body)
        )
        assert longest < 0.5 * whole


async def _cpu(work: Coroutine[Any, None, Any]) -> tuple[float, float]:
    """Return how much of the processor the whole of `work` takes, and its longest step, in seconds."""
    steps = []
    with contextlib.suppress(StopIteration, BadRequest):
        while True:
            began = process_time()
            try:
                work.send(None)
            finally:
                steps.append(process_time() - began)
    return sum(steps), max(steps)
