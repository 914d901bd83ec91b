"""Texts on which two tokenizers of one model must agree before the faster one is trusted with it."""

from __future__ import annotations

TEXTS: tuple[str, ...] = (
    "",
    " ",
    "\n",
    "hello world",
    "Hello, World! It's 12:34:56 on 2026-01-31, isn't it? I'LL say we've $1,234.56 (about 7%).",
    "  two  spaces   three\tand\t\ttabs \n\n new \r\n lines \n \n  \t end   ",
    " " * 257 + "x" + "\t" * 33 + "\n" * 65,
    "a" * 2049,
    "ab" * 700 + " " + "9" * 500 + " " + "=-" * 300,
    "def f(x: int) -> str:\n    return f'{x!r:>10}'  # 日本\n\n\nclass A(B):\n\tpass\n",
    '{"type": "object", "properties": {"città": {"enum": ["Ω", null, 1e-9]}}}',
    "Grüße aus Köln, naïve façade, Ελληνικά, русский язык,",
    " עברית, العربية, हिन्दी, ไทย, 한국어, 日本語、中文。",
    "一二三四五六七八九十" * 40,
    "e\u0301 vs \u00e9, \u1e9b\u0323, ﬁ ligature, Å K Ω,",
    " zero\u200bwidth, no\u00a0break, \ufeffbom, soft\u00adhyphen",
    "👍🏽 👩‍👩‍👧‍👦 🇩🇪🇫🇷 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ❤️‍🔥 \U0010ffff \U000e0001",
    "\x00 nul \x01\x02\x1b[0m \x7f \x85 \u2028 \u2029 \ufffd \ufffe",
    "▁▁ ▁a Ġhello Ċ <0x0A> <s> </s> [INST] <|im_start|>user\n<|endoftext|> <unk>",
)

MAX_ADDED_TOKENS = 200
"""How many of a model's added tokens are tried in text; the first and the last are among them."""


def with_added_tokens(tokens: list[str]) -> list[str]:
    """Return texts in which each of `tokens` stands alone, glued to words, and between blanks."""
    half = MAX_ADDED_TOKENS // 2
    chosen = tokens if len(tokens) <= MAX_ADDED_TOKENS else tokens[:half] + tokens[-half:]
    return [f"{token}user{token} \n{token}  hi {token}" for token in chosen]
