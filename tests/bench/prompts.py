"""What reading a prompt costs: parse, render, tokenise, against Hugging Face's tokenizers in the same run."""

from __future__ import annotations

import json
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from router.prompts.fields import Chat
from router.prompts.reader import read_prompt
from router.prompts.request import Kind, parse
from router.prompts.tokenizer import ChatTokenizer, TokenizersEncoder, load_tokenizer
from tests.prompts import models

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.prompts.prompt import Prompt

WORDS_PER_CHAT = {"200 tokens": 60, "2k tokens": 600, "32k tokens": 10_000}


def main() -> None:
    """Print the median time of each stage in us, on text that no cache has seen."""
    with tempfile.TemporaryDirectory() as directory:
        tokenizer = load_tokenizer(models.deepseek(Path(directory), models.CAPTURED_TEMPLATE))
    slow = TokenizersEncoder(models.DEEPSEEK / "tokenizer.json")
    stages = ("tokens", "bytes", "parse", "render", "fastokens", "all", "tokenizers", "ratio")
    print(f"{'us, median':12}" + "".join(f"{stage:>12}" for stage in stages))
    for name, words in WORDS_PER_CHAT.items():
        print(f"{name:12}" + "".join(f"{value:12.1f}" for value in _row(words, tokenizer, slow)))


def _row(words: int, tokenizer: ChatTokenizer, slow: TokenizersEncoder) -> list[float]:
    bodies = [_chat(words, seed) for seed in range(60 if words < 1_000 else 12)]
    requests = [parse(Kind.CHAT, body) for body in bodies]
    chats = [request.fields for request in requests if isinstance(request.fields, Chat)]
    texts = [tokenizer.render(chat) for chat in chats]
    encode, reference = tokenizer.encoder.encode, slow.encode
    third = len(texts) // 3
    parsing = _median([partial(parse, Kind.CHAT, body) for body in bodies])
    rendering = _median([partial(tokenizer.render, chat) for chat in chats])
    fast = _median([partial(encode, text, special=False) for text in texts[:third]])
    whole = _median([partial(_read, body, tokenizer) for body in bodies[third : 2 * third]])
    other = _median([partial(reference, text, special=False) for text in texts[2 * third :]])
    tokens = read_prompt(requests[0], tokenizer).count
    return [tokens, len(bodies[0]), parsing, rendering, fast, whole, other, other / fast]


def _read(body: bytes, tokenizer: ChatTokenizer) -> Prompt:
    return read_prompt(parse(Kind.CHAT, body), tokenizer)


def _median(calls: list[Callable[[], object]]) -> float:
    times = []
    for call in calls:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e6


def _chat(words: int, seed: int) -> bytes:
    chance = random.Random(seed)
    text = " ".join(
        "".join(chance.choices("etaoinshrdlucmfwypvbgkjqxz", k=chance.randint(2, 9))) for _ in range(words)
    )
    cut = len(text) // 2
    messages = [{"role": "system", "content": text[:cut]}, {"role": "user", "content": text[cut:]}]
    return json.dumps({"model": "m", "stream": True, "max_tokens": 64, "messages": messages}).encode()


if __name__ == "__main__":
    main()
