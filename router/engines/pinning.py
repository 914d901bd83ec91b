"""Pinning a request to a DP rank: the same header on both engines (SGLang 0.5.23, vLLM 0.32)."""

from __future__ import annotations


def rank_headers(rank: int, dp: int) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that pin a request to `rank` of `dp`; none where there is one rank only.

    A rank out of range is a 400 on vLLM.
    """
    return ((b"x-data-parallel-rank", b"%d" % rank),) if dp > 1 else ()
