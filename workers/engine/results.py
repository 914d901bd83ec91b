"""What follows from a batch that has run: tokens, stored blocks, finished requests, and publishing.

SGLang 0.5.23 publishes after every prefill result and after every 40th decode step; vLLM 0.32 after every
step that has something to say. Requests that have ended since the batch was launched are passed over: an
overlapping loop computes one token too many for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.engine.admission import Piece, Step
    from workers.engine.pairs import PrefillSide
    from workers.engine.rank import Rank
    from workers.engine.request import Request

PUBLISH_EVERY_DECODE_STEPS = 40  # SGLang 0.5.23


def process(rank: Rank, step: Step, now: float) -> None:
    """Apply the result of one batch at the time it ended."""
    if step.pieces:
        rank.counters.prefilled_tokens += sum(piece.size for piece in step.pieces)
        rank.counters.prefill_seconds += step.seconds
        _prefilled(rank, step.pieces, now)
        rank.publish(now)
        return
    _decoded(rank, step.decode)
    rank.counters.decode_steps += 1
    every = 1 if rank.config.dialect.publishes_every_step else PUBLISH_EVERY_DECODE_STEPS
    if rank.counters.decode_steps % every == 0:
        rank.publish(now)


def _prefilled(rank: Rank, pieces: list[Piece], now: float) -> None:
    ended = False
    for piece in pieces:
        request = piece.request
        if request.finish is not None:
            continue
        if piece.last and rank.prefill is not None:
            _hand_over(rank, rank.prefill, request, now)
        elif piece.last and emit(rank, request):
            ended = True
        else:
            rank.memory.store(request, piece.computed, counts=piece.last)
    if ended:
        _drop_finished(rank)


def _hand_over(rank: Rank, side: PrefillSide, request: Request, now: float) -> None:
    """Send a prompt's KV to the worker that decodes it; the first token goes with it."""
    side.computing.remove(request)
    rank.memory.store(request, request.computed)
    if request.aborted:
        rank.end(request, "abort")
        return
    _draw(rank, request)
    side.send(request, now)


def _decoded(rank: Rank, requests: list[Request]) -> None:
    size = rank.config.page_size
    early = rank.config.dialect.stores_when_scheduled
    ended = False
    for request in requests:
        if request.finish is not None:
            ended = True
            continue
        request.computed += 1
        if request.computed % size == 1 or size == 1:
            rank.memory.grow(request)
        if emit(rank, request):
            ended = True
        elif early and request.computed % size == 0:
            rank.memory.store(request, request.computed)
    if ended:
        _drop_finished(rank)


def _drop_finished(rank: Rank) -> None:
    rank.running = [request for request in rank.running if request.finish is None]
    rank.last_batch = [request for request in rank.last_batch if request.finish is None]


def emit(rank: Rank, request: Request) -> bool:
    """Draw the next token; store and end the request if it was the last. The last token has no KV yet."""
    _draw(rank, request)
    if len(request.output) >= request.max_new:
        rank.memory.store(request, request.computed)
        rank.end(request, request.ends_with)
        return True
    if request.eager:
        rank.progress.append(request)
    return False


def draw_many(rank: Rank, request: Request, count: int) -> None:
    """Add the next tokens to a request."""
    sampler = rank.config.sampler
    state = sampler.start(request.sequence.data) if request.draw is None else request.draw
    request.draw, tokens = sampler.advance_many(state, count)
    request.sequence.extend(tokens)
    request.output += tokens
    rank.counters.generated_tokens += count


def _draw(rank: Rank, request: Request) -> None:
    """Add the next token to a request."""
    sampler = rank.config.sampler
    if request.draw is None:
        request.draw = sampler.start(request.sequence.data)
    request.draw, token = sampler.advance(request.draw)
    request.sequence.append(token)
    request.output.append(token)
    rank.counters.generated_tokens += 1
