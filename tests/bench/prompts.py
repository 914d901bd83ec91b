"""What reading a prompt costs, stage by stage, against Hugging Face's tokenizers in the same run.

Three tables: chats that no cache has seen; the next turn of long conversations; and how long the event loop
stands still while long prompts are read. Fresh chats are compared twice: with our own chain where only the
tokenizer is exchanged for `tokenizers` (and our compiled template is kept), and with transformers, which
renders with jinja2's sandbox and tokenises with `tokenizers`, as engines do. Prose is what people send (the
help topics that come with Python); words of random letters are the worst case: no cache knows their merges.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from array import array
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from typing import TYPE_CHECKING, Any

import uvloop
from transformers import AutoTokenizer

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

_PROSE = " ".join(topics.values()).split(" ")
TEMPLATE = Path(__file__).parents[1] / "fixtures" / "templates" / "deepseekv3.jinja"
BLOCK_SIZE = 16
TURN_SECONDS = 0.001
CHATS = {
    "200 tokens, prose": (130, True),
    "2k tokens, prose": (1_400, True),
    "200 tokens, letters": (62, False),
    "2k tokens, letters": (630, False),
    "32k tokens, letters": (10_000, False),
    "128k tokens, letters": (40_000, False),
}
"""Words of a chat, and whether they are prose."""
TURNS = {
    "32k, 40 messages": (12, 240),
    "32k, 320 messages": (152, 30),
    "128k, 160 messages": (72, 240),
}
"""Turns (a question and its answer) before the one measured, and the words of a message."""


def main() -> None:
    """Print the tables: medians of CPU time of all threads, and at last of the clock's."""
    with tempfile.TemporaryDirectory() as directory:
        path = models.deepseek(Path(directory), TEMPLATE.read_text(encoding="utf-8"))
        tokenizer = load_tokenizer(path)
        theirs = AutoTokenizer.from_pretrained(path)
    slow = TokenizersEncoder(models.DEEPSEEK / "tokenizer.json")
    stages = ("tokens", "parse", "render", "tokenise", "hash", "all")
    others = ("tokenizers", "all with", "times", "transf.", "all with", "times")
    print(f"{'fresh chat, us':20}" + "".join(f"{stage:>11}" for stage in (*stages, *others)))
    for name, (words, prose) in CHATS.items():
        values = _fresh(
            partial(_chat, words, prose=prose), 60 if words < 1_000 else 3, tokenizer, slow, theirs
        )
        print(f"{name:20}" + "".join(f"{value:11.1f}" for value in values))
    turn_stages = ("tokens", "parse", "render", "all", "tokenizers", "times")
    print(f"\n{'turn n, us':20}" + "".join(f"{stage:>11}" for stage in turn_stages))
    for name, (turns, words) in TURNS.items():
        values = _next_turns(turns, words, tokenizer, slow)
        print(f"{name:20}" + "".join(f"{value:11.1f}" for value in values))
    print(f"\n{'read, ms':32}{'tokens':>10}{'in all':>10}{'held':>10}{'held, CPU':>10}")
    for name, body in _long_bodies().items():
        values = uvloop.run(_held_up(body, tokenizer))
        print(f"{name:32}" + f"{values[0]:10.0f}" + "".join(f"{value:10.2f}" for value in values[1:]))


def _fresh(
    chat_of: Callable[[int], bytes],
    count: int,
    tokenizer: ChatTokenizer,
    slow: TokenizersEncoder,
    theirs: Any,
) -> list[float]:
    """Every stage has chats of its own, and as many others before that, so that the libraries are warm."""
    seeds = iter(range(10 * count))
    bodies = [[chat_of(next(seeds)) for _ in range(2 * count)] for _ in range(5)]
    chats = [[_chat_of(body) for body in some] for some in bodies]
    texts = [[tokenizer.render(chat) for chat in some] for some in chats]
    parsing = _median([partial(parse, Kind.CHAT, body) for body in bodies[0]], count)
    rendering = _median([partial(tokenizer.render, chat) for chat in chats[0]], count)
    fast = _median([partial(tokenizer.encoder.encode, text, special=False) for text in texts[1]], count)
    tokens = [tokenizer.encoder.encode(text, special=False) for text in texts[1]]
    hashing = _median([partial(_hash, each) for each in tokens], count)
    whole = _median([partial(_read, body, tokenizer) for body in bodies[2]], count)
    other = _median([partial(slow.encode, text, special=False) for text in texts[3]], count)
    usual = _median([partial(_usual_ids, theirs, chat) for chat in chats[4]], count)
    with_other, with_usual = parsing + rendering + other + hashing, parsing + usual + hashing
    ours = [parsing, rendering, fast, hashing, whole]
    return [
        len(tokens[0]) // 4,
        *ours,
        *(other, with_other, with_other / whole),
        *(usual, with_usual, with_usual / whole),
    ]


def _chat_of(body: bytes) -> Chat:
    fields = parse(Kind.CHAT, body).fields
    assert isinstance(fields, Chat)
    return fields


def _usual_ids(theirs: Any, chat: Chat) -> bytes:
    ids = theirs.apply_chat_template(chat.messages, add_generation_prompt=True, return_dict=False)
    return array("I", ids).tobytes()


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
    chat = _chat_of(body)
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


def _median(calls: list[Callable[[], object]], warm: int = 0) -> float:
    """Return the median CPU time in us; the first `warm` calls do not count."""
    times = []
    for call in calls:
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    times = times[warm:]
    return sorted(times)[len(times) // 2] * 1e6


def _message(number: int, words: int, chance: random.Random) -> dict[str, Any]:
    return {"role": "assistant" if number % 2 else "user", "content": _text(words, chance)}


def _body(messages: list[dict[str, Any]]) -> bytes:
    return json.dumps({"model": "m", "stream": True, "max_tokens": 64, "messages": messages}).encode()


def _chat(words: int, seed: int, *, prose: bool = False) -> bytes:
    chance = random.Random(seed)
    text = _prose(words, chance) if prose else _text(words, chance)
    cut = len(text) // 2
    return _body([{"role": "system", "content": text[:cut]}, {"role": "user", "content": text[cut:]}])


def _prose(words: int, chance: random.Random) -> str:
    start = chance.randrange(len(_PROSE) - words)
    return " ".join(_PROSE[start : start + words])


def _text(words: int, chance: random.Random) -> str:
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    return " ".join("".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(words))


if __name__ == "__main__":
    main()
