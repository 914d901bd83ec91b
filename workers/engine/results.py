"""What follows from a batch that has run: tokens, stored blocks, finished requests, and publishing.

SGLang 0.5.23 publishes after every prefill result and after every 40th decode step; vLLM 0.32 after every
step that has something to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers.engine.rank import PUBLISH_EVERY_DECODE_STEPS

if TYPE_CHECKING:
    from workers.engine.admission import Step
    from workers.engine.rank import Rank
    from workers.engine.request import Request


def process(rank: Rank, step: Step, now: float) -> None:
    """Apply the result of one batch at the time it ended."""
    if step.pieces:
        _prefilled(rank, [request for request, _ in step.pieces])
        rank.publish(now)
        return
    _decoded(rank, step.decode)
    rank.counters.decode_steps += 1
    every = 1 if rank.config.dialect.publishes_every_step else PUBLISH_EVERY_DECODE_STEPS
    if rank.counters.decode_steps % every == 0:
        rank.publish(now)


def _prefilled(rank: Rank, requests: list[Request]) -> None:
    for request in requests:
        complete = request is not rank.chunked
        if not (complete and _emit(rank, request)):
            rank.store(request)
            if complete:
                rank.last_batch.append(request)


def _decoded(rank: Rank, requests: list[Request]) -> None:
    size = rank.config.page_size
    early = rank.config.dialect.stores_while_decoding
    done = False
    for request in requests:
        request.computed += 1
        if request.computed % size == 1 or size == 1:
            rank.grow(request)
        if _emit(rank, request):
            done = True
        elif early and request.computed % size == 0:
            rank.store(request)
    if done:
        rank.running = [request for request in requests if request.finish is None]


def _emit(rank: Rank, request: Request) -> bool:
    """Draw the next token; store and end the request if it was the last. The last token has no KV yet."""
    sampler = rank.config.sampler
    if request.draw is None:
        request.draw = sampler.start(request.sequence.data)
    request.draw, token = sampler.advance(request.draw)
    request.sequence.append(token)
    request.output.append(token)
    rank.counters.generated_tokens += 1
    if len(request.output) >= request.max_new:
        rank.store(request)
        rank.end(request, request.ends_with)
        return True
    if request.eager:
        rank.progress.append(request)
    return False
