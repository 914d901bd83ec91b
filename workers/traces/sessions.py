"""Workloads of conversations: each turn repeats all that came before it.

The answers within a prompt are of the generator's own making, as in a published trace: a worker that has
answered a turn holds its prompt, but not the answer that the next turn shows.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from workers.traces.workload import Ask, Workload, in_order, poisson

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from workers.traces.workload import Segment


def chat(
    rng: Random,
    *,
    qps: float = 10.0,
    seconds: float = 240.0,
    turns: int = 6,
    assistants: int = 20,
    system: int = 1500,
    question: int = 150,
    output: int = 300,
    think: float = 20.0,
) -> Workload:
    """Multi-turn chat with one of some `assistants`, each of which has a `system` prompt.

    A turn comes `think` seconds after the one before, on average. Lengths are means, too.
    """
    begins = poisson(rng, qps / turns, seconds)
    return _sessions("chat", rng, begins, seconds, assistants, system, turns, think, question, output)


def agents(
    rng: Random,
    *,
    qps: float = 8.0,
    seconds: float = 240.0,
    steps: int = 25,
    kinds: int = 6,
    tools: int = 9000,
    result: int = 900,
    output: int = 120,
    pause: float = 6.0,
) -> Workload:
    """Agents of some `kinds`, each with a prompt of `tools` tokens, that call a tool after every answer.

    A tool takes `pause` seconds and gives `result` tokens, on average.
    """
    begins = poisson(rng, qps / steps, seconds)
    return _sessions("agents", rng, begins, seconds, kinds, tools, steps, pause, result, output)


def _sessions(
    name: str,
    rng: Random,
    begins: list[float],
    seconds: float,
    kinds: int,
    first: int,
    turns: int,
    pause: float,
    added: int,
    output: int,
) -> Workload:
    """Make conversations that begin with one of some `kinds` of prompts, `first` tokens long."""
    names = count(kinds)
    asks: list[Ask] = []
    for at in begins:
        start = [(rng.randrange(kinds), first)]
        asks += _session(rng, names, at, start, turns, pause, added, output)
    return Workload(name, in_order([ask for ask in asks if ask.at < seconds]))


def _session(
    rng: Random,
    names: Iterator[int],
    at: float,
    start: list[Segment],
    turns: int,
    pause: float,
    added: int,
    output: int,
) -> Iterator[Ask]:
    """Yield the turns of one conversation, the first at `at`."""
    segments = list(start)
    for _ in range(turns):
        segments.append((next(names), _about(rng, added)))
        answer = _about(rng, output)
        yield Ask(at, tuple(segments), answer, session=segments[len(start)][0])
        segments.append((next(names), answer))
        at += rng.expovariate(1 / pause)


def _about(rng: Random, mean: int) -> int:
    return max(1, round(rng.uniform(0.5, 1.5) * mean))
