"""Workloads of prompts that share a prefix and stand alone otherwise; each call comes when it comes."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from workers.traces.workload import Ask, Segment, Sync, Workload, in_order, poisson

if TYPE_CHECKING:
    from random import Random


def groups(
    rng: Random,
    *,
    qps: float = 20.0,
    seconds: float = 120.0,
    groups: int = 150,
    questions: int = 5,
    shared: int = 6000,
    own: int = 1200,
    output: int = 1000,
) -> Workload:
    """A fixed corpus (b2b): `groups` prefixes of `shared` tokens with `questions` of `own` tokens each.

    The whole corpus is asked in random order, over and over.
    """
    corpus = [
        ((group, shared), (groups + group * questions + question, own))
        for group in range(groups)
        for question in range(questions)
    ]
    order: list[tuple[Segment, ...]] = []
    asks = []
    for at in poisson(rng, qps, seconds):
        if not order:
            order = rng.sample(corpus, len(corpus))
        asks.append(Ask(at, order.pop(), output))
    return Workload("groups", tuple(asks))


def hot(
    rng: Random,
    *,
    qps: float = 12.0,
    seconds: float = 120.0,
    share: float = 0.4,
    shared: int = 8000,
    others: int = 100,
    own: int = 500,
    output: int = 200,
    burst: int = 32,
) -> Workload:
    """One prefix has a `share` of all requests, `burst` of them at one moment; the rest goes to `others`."""
    names = count(others + 1)
    asks = [
        _one(rng.randrange(1, others + 1), shared, next(names), own, at, output)
        for at in poisson(rng, qps * (1 - share), seconds)
    ]
    for at in poisson(rng, qps * share / burst, seconds):
        asks += [_one(0, shared, next(names), own, at, output) for _ in range(burst)]
    return Workload("hot", in_order(asks))


def siblings(
    rng: Random,
    *,
    qps: float = 12.0,
    seconds: float = 120.0,
    siblings: int = 16,
    shared: int = 6000,
    own: int = 200,
    output: int = 200,
) -> Workload:
    """Cold siblings: every prefix is new and comes with all its `siblings` at one moment, never again."""
    names = count()
    asks = []
    for at in poisson(rng, qps / siblings, seconds):
        prefix = next(names)
        asks += [_one(prefix, shared, next(names), own, at, output) for _ in range(siblings)]
    return Workload("siblings", tuple(asks))


def rollouts(
    rng: Random,
    *,
    qps: float = 8.0,
    seconds: float = 240.0,
    every: float = 60.0,
    samples: int = 8,
    prompt: int = 1500,
    output: int = 1000,
    sync: float = 5.0,
) -> Workload:
    """RL rollouts: a step every `every` s, each prompt with `samples` samples at once, then a weight sync.

    A step's prompts come within its first half; answers have an exponential length of `output` on average.
    Each step but the first begins with a sync: pause, flush, `sync` seconds later on again.
    """
    names = count()
    asks, syncs = [], []
    step = 0.0
    while step < seconds:
        if step:
            syncs.append(Sync(step, sync))
        for at in poisson(rng, 2 * qps / samples, every / 2):
            name = next(names)
            asks += [Ask(step + sync + at, ((name, prompt),), _length(rng, output)) for _ in range(samples)]
        step += every
    return Workload("rollouts", tuple(asks), tuple(syncs))


def _length(rng: Random, mean: int) -> int:
    return 1 + min(8 * mean, int(rng.expovariate(1 / mean)))


def _one(prefix: int, shared: int, name: int, own: int, at: float, output: int) -> Ask:
    return Ask(at, ((prefix, shared), (name, own)), output)
