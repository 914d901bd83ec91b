"""When decoding needs more pages than there are: who gives its own back, and what admission learns from it.

SGLang 0.5.23 admits a request if its prompt, its own output, and a share of what the others may still be
answered with will fit; that share, the new-token ratio, falls with every decode step. When a step does not
fit after all, the running requests with the least output are retracted, and the ratio is set by what those
that stay have really used. vLLM 0.32 admits whatever prompt fits and preempts the request admitted last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.engine.rank import Rank
    from workers.engine.request import Request

INITIAL_RATIO = 0.7  # SGLang's SGLANG_INIT_NEW_TOKEN_RATIO, at a schedule conservativeness of 1
LEAST_RATIO = INITIAL_RATIO * 0.14  # SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR
_DECAY_STEPS = 600  # SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS
_DECAY = (INITIAL_RATIO - LEAST_RATIO) / _DECAY_STEPS
_AHEAD_TOKENS = 20  # SGLANG_RETRACT_DECODE_STEPS: what each is thought to need at once
MOST_PAGES = 2  # that a step and one launched before it may take for a request


def decayed(ratio: float) -> float:
    """Return the new-token ratio after one more decode step."""
    return max(LEAST_RATIO, ratio - _DECAY)


def fits(rank: Rank) -> bool:
    """Return whether a decode step of all that runs fits, beside what has been launched; mostly O(1)."""
    room = rank.memory.room
    if room >= MOST_PAGES * len(rank.running):
        return True
    steps = 1 + len(rank.launched)
    return room >= sum(_pages(rank, request, steps) for request in rank.running)


def _pages(rank: Rank, request: Request, steps: int) -> int:
    most = request.prompt_tokens + request.max_new - 1  # the last token needs no KV
    return max(0, rank.memory.short(request, min(request.computed + steps, most)))


def retract(rank: Rank) -> None:
    """Take requests back until a decode step of the others fits; their results must have been looked at."""
    while rank.running and not fits(rank):
        victim = _victim(rank)
        rank.running = [request for request in rank.running if request is not victim]
        rank.give_back(victim, first=rank.config.dialect.holds_blocks)
        rank.counters.retracted += 1
    if rank.running:
        used = sum(len(request.output) + _AHEAD_TOKENS for request in rank.running)
        rank.new_token_ratio = min(1.0, used / (sum(request.max_new for request in rank.running) + 1))


def _victim(rank: Rank) -> Request:
    if rank.config.dialect.holds_blocks:
        return rank.running[-1]
    return min(reversed(rank.running), key=lambda request: (len(request.output), -request.prompt_tokens))
