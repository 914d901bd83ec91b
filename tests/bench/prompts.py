"""What reading a prompt costs, stage by stage, against Hugging Face's tokenizers in the same run.

Three tables: chats that no cache has seen; the next turn of long conversations; and how long the event loop
stands still while long prompts are read.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from router.core.blocks import Namespace, PromptBlocks
from router.prompts.encoders import TokenizersEncoder
from router.prompts.fields import Chat
from router.prompts.large import parse_large
from router.prompts.reader import PromptReader, read_prompt
from router.prompts.request import Kind, parse
from router.prompts.tokenizer import ChatTokenizer, load_tokenizer
from tests.prompts import models

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.prompts.prompt import Prompt

TEMPLATE = Path(__file__).parents[1] / "fixtures" / "templates" / "deepseekv3.jinja"
BLOCK_SIZE = 16
TURN_SECONDS = 0.001
CHATS = {"200-token chat": 62, "2k-token chat": 630, "32k-token chat": 10_000, "128k-token chat": 40_000}
TURNS = {
    "32k, 40 messages": (12, 240),
    "32k, 320 messages": (152, 30),
    "128k, 160 messages": (72, 240),
}
"""Turns (a question and its answer) before the one measured, and the words of a message."""


def main() -> None:
    """Print the tables: medians of CPU time of all threads, and at last of the clock's."""
    with tempfile.TemporaryDirectory() as directory:
        tokenizer = load_tokenizer(models.deepseek(Path(directory), TEMPLATE.read_text(encoding="utf-8")))
    slow = TokenizersEncoder(models.DEEPSEEK / "tokenizer.json")
    stages = ("tokens", "parse", "render", "tokenise", "hash", "all", "tokenizers", "all with", "times")
    print(f"{'fresh text, us':16}" + "".join(f"{stage:>11}" for stage in stages))
    for name, words in CHATS.items():
        print(f"{name:16}" + "".join(f"{value:11.1f}" for value in _fresh(words, tokenizer, slow)))
    turn_stages = ("tokens", "parse", "render", "all", "tokenizers", "times")
    print(f"\n{'turn n, us':20}" + "".join(f"{stage:>11}" for stage in turn_stages))
    for name, (turns, words) in TURNS.items():
        values = _next_turns(turns, words, tokenizer, slow)
        print(f"{name:20}" + "".join(f"{value:11.1f}" for value in values))
    print(f"\n{'read, ms':32}{'tokens':>10}{'in all':>10}{'held':>10}{'held, CPU':>10}")
    for name, body in _long_bodies().items():
        values = uvloop.run(_held_up(body, tokenizer))
        print(f"{name:32}" + f"{values[0]:10.0f}" + "".join(f"{value:10.2f}" for value in values[1:]))


def _fresh(words: int, tokenizer: ChatTokenizer, slow: TokenizersEncoder) -> list[float]:
    bodies = [_chat(words, seed) for seed in range(90 if words < 1_000 else 9)]
    requests = [parse(Kind.CHAT, body) for body in bodies]
    chats = [request.fields for request in requests if isinstance(request.fields, Chat)]
    texts = [tokenizer.render(chat) for chat in chats]
    third = len(texts) // 3
    parsing = _median([partial(parse, Kind.CHAT, body) for body in bodies])
    rendering = _median([partial(tokenizer.render, chat) for chat in chats])
    fast = _median([partial(tokenizer.encoder.encode, text, special=False) for text in texts[:third]])
    tokens = [tokenizer.encoder.encode(text, special=False) for text in texts[:third]]
    hashing = _median([partial(_hash, each) for each in tokens])
    whole = _median([partial(_read, body, tokenizer) for body in bodies[third : 2 * third]])
    other = _median([partial(slow.encode, text, special=False) for text in texts[2 * third :]])
    with_other = parsing + rendering + other + hashing
    stages = [parsing, rendering, fast, hashing, whole, other, with_other, with_other / whole]
    return [len(tokens[0]) // 4, *stages]


def _next_turns(turns: int, words: int, tokenizer: ChatTokenizer, slow: TokenizersEncoder) -> list[float]:
    """A conversation grows; each turn is read whole, as a router gets it."""
    chance = random.Random(turns)
    messages = [_message(number, words, chance) for number in range(2 * turns - 1)]
    read_prompt(parse(Kind.CHAT, _body(messages)), tokenizer)
    times, count, body = [], 0, b""
    for _ in range(8):
        messages += [_message(1, words, chance), _message(0, words, chance)]
        body = _body(messages)
        began = time.process_time()
        count = _read(body, tokenizer).count
        times.append(time.process_time() - began)
    whole = sorted(times)[len(times) // 2] * 1e6
    chat = parse(Kind.CHAT, body).fields
    assert isinstance(chat, Chat)
    parsing = _median([partial(parse, Kind.CHAT, body)] * 9)
    rendering = _median([partial(tokenizer.render, chat)] * 9)
    with_other = parsing + rendering + _median([partial(slow.encode, tokenizer.render(chat), special=False)])
    return [count, parsing, rendering, whole, with_other, with_other / whole]


def _long_bodies() -> dict[str, tuple[Kind, bytes]]:
    chance = random.Random(7)
    ids = [chance.randrange(1_000, 100_000) for _ in range(131_072)]
    text = _text(40_000, chance)
    return {
        "128k tokens of text, cold": (Kind.COMPLETIONS, json.dumps({"prompt": text}).encode()),
        "the same again": (Kind.COMPLETIONS, json.dumps({"prompt": text}).encode()),
        "128k-token chat, cold": (Kind.CHAT, _chat(40_000, 77)),
        "128k token ids": (Kind.COMPLETIONS, json.dumps({"prompt": ids}).encode()),
        "8 prompts of 16k token ids": (
            Kind.COMPLETIONS,
            json.dumps({"prompt": [ids[at : at + 16_384] for at in range(0, 131_072, 16_384)]}).encode(),
        ),
    }


async def _held_up(given: tuple[Kind, bytes], tokenizer: ChatTokenizer) -> list[float]:
    """Return tokens, the time in ms until the blocks are known, and the longest turn of the loop.

    A turn by the clock, where other processes count too, and by the CPU time of the loop's own thread.
    """
    reader = PromptReader()
    kind, body = given
    gaps: list[tuple[float, float]] = []
    watcher = asyncio.create_task(_watch(gaps))
    await asyncio.sleep(0.01)
    gaps.clear()
    began = time.perf_counter()
    request = await parse_large(kind, body)
    prompt = await reader.read(request, tokenizer)
    _hash(prompt.tokens)
    took = time.perf_counter() - began
    await asyncio.sleep(2 * TURN_SECONDS)
    watcher.cancel()
    reader.close()
    clock, cpu = zip(*gaps, strict=True)
    return [prompt.count, took * 1e3, max(clock) * 1e3, max(cpu) * 1e3]


async def _watch(gaps: list[tuple[float, float]]) -> None:
    last, busy = time.perf_counter(), time.thread_time()
    while True:
        await asyncio.sleep(TURN_SECONDS)
        now, cpu = time.perf_counter(), time.thread_time()
        gaps.append((now - last - TURN_SECONDS, cpu - busy))
        last, busy = now, cpu


def _read(body: bytes, tokenizer: ChatTokenizer) -> Prompt:
    """Do all of it: parse, render, tokenise, hash."""
    prompt = read_prompt(parse(Kind.CHAT, body), tokenizer)
    _hash(prompt.tokens)
    return prompt


def _hash(tokens: bytes) -> Sequence[int]:
    return PromptBlocks(tokens, len(tokens) // 4, Namespace("m")).keys(BLOCK_SIZE, bigram=False)


def _median(calls: list[Callable[[], object]]) -> float:
    times = []
    for call in calls:
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return sorted(times)[len(times) // 2] * 1e6


def _message(number: int, words: int, chance: random.Random) -> dict[str, Any]:
    return {"role": "assistant" if number % 2 else "user", "content": _text(words, chance)}


def _body(messages: list[dict[str, Any]]) -> bytes:
    return json.dumps({"model": "m", "stream": True, "max_tokens": 64, "messages": messages}).encode()


def _chat(words: int, seed: int) -> bytes:
    text = _text(words, random.Random(seed))
    cut = len(text) // 2
    return _body([{"role": "system", "content": text[:cut]}, {"role": "user", "content": text[cut:]}])


def _text(words: int, chance: random.Random) -> str:
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    return " ".join("".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(words))


if __name__ == "__main__":
    main()
