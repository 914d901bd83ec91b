"""What an answer teaches: the engine's own counts are the truth, and the difference to ours is measured.

An engine that reports fewer cached tokens than its view had claimed has computed those blocks anew, and its
events have put the view right by now; only where no event has come since is the claim itself dropped. A rank
whose claims fail several times in a row begins anew. What was only predicted may come to nothing: how much
of it does is learnt, too, and predictions of that rank then count so much less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.api.planner import Plan, Planner
    from router.core.facts import Candidate
    from router.fleet.fleet import Fleet
    from router.observe.metrics import Metrics
    from router.observe.story import Story
    from router.proxy.relay import Relayed
    from router.streams.stream import Stream

_OK = 200
# No prompt is longer; what a worker reports beyond it is no count.
_MOST_TOKENS = 10**9
# Contradicted claims in a row: one or two happen when blocks are evicted between decision and prefill.
_MOST_CONTRADICTIONS = 5


class Feedback:
    """Learns from the answers of one fleet."""

    def __init__(self, fleet: Fleet, planner: Planner, metrics: Metrics) -> None:
        self._fleet = fleet
        self._planner = planner
        self._metrics = metrics

    def learn(
        self, plan: Plan, candidate: Candidate, relayed: Relayed, heard: int, story: Story | None = None
    ) -> None:
        """Hold what was expected of the engine's cache, and of its tokens, against what the engine says.

        `heard`: how many batches the rank's stream had brought when the request was sent.
        """
        if relayed.failure is not None or relayed.status != _OK:
            return
        prompt_tokens, cached = relayed.counts(prompt=plan.exact)
        if prompt_tokens is not None:
            self._planner.learn(plan, prompt_tokens)
        if cached is not None and cached > _MOST_TOKENS:
            cached = None
        if story is not None:
            story.reported(prompt_tokens, cached)
        rank = candidate.rank
        rank.answered += 1
        rank.prompt_tokens += plan.prompt.count
        rank.cached_tokens += candidate.overlap_tokens if cached is None else cached
        self._stored(candidate, plan.prompt.count - cached if cached is not None else None)
        counts = self._metrics.of(plan.route.model)
        counts.finished(candidate.overlap_tokens, plan.prompt.count, cached)
        if cached is not None:
            self._check(plan, candidate, cached, heard, story)
            if candidate.predicted_tokens:
                self._trust(plan, candidate, cached, story)

    def _stored(self, candidate: Candidate, uncached: int | None) -> None:
        """Tell the stream of a request that made the rank store blocks."""
        rank = candidate.rank
        if uncached is None:
            uncached = candidate.uncached_tokens
        if uncached > (rank.view.block_size or 0):
            stream = self._fleet.stream_of(rank)
            if stream is not None:
                stream.completed()

    def _trust(self, plan: Plan, candidate: Candidate, cached: int, story: Story | None) -> None:
        """Learn how much of what was predicted of a rank has come true; of several prompts nobody knows."""
        beyond = cached - candidate.cached_tokens
        if beyond >= 0 and plan.request.prompts == 1 and self._fleet.holds(candidate.rank):
            share = min(1.0, beyond / candidate.predicted_tokens)
            candidate.rank.view.predicted.learn(share)
            if story is not None:
                story.trusted(share)

    def _check(self, plan: Plan, candidate: Candidate, cached: int, heard: int, story: Story | None) -> None:
        """Count a claim that the engine's own count contradicts by a block or more."""
        rank = candidate.rank
        size = rank.view.block_size or 1
        if cached + size > candidate.cached_tokens or plan.request.prompts > 1:
            rank.contradictions = 0
            return
        rank.contradictions += 1
        if not self._fleet.holds(rank):
            return  # it has left, or is another by now
        if rank.contradictions >= _MOST_CONTRADICTIONS:
            rank.contradictions = 0
            self._fleet.distrust(rank)
        elif batches(self._fleet.stream_of(rank)) == heard:
            keys = plan.prompt.keys(size, bigram=rank.view.bigram)
            rank.view.contradict(keys, cached // size)
            if story is not None:
                story.contradicted(cached // size)


def batches(stream: Stream | None) -> int:
    """Return how many batches a stream has brought."""
    return 0 if stream is None else stream.counts.batches
