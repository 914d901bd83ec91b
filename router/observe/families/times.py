"""Times: what clients wait for, and how much of it the router adds."""

from __future__ import annotations

from router.observe.definition import MODEL, NONE, Definition, by_model, each, one

TIMES = (
    Definition(
        "histogram",
        "time_to_first_token_seconds",
        "seconds",
        MODEL,
        "Of streamed answers: from a request's arrival to the first bytes of its answer's body, which "
        "engines send with the first token",
        by_model(lambda counts: counts.first_token),
    ),
    Definition(
        "histogram",
        "inter_token_seconds",
        "seconds",
        ("model", "counted"),
        "Of streamed answers that came to their end: mean time from token to token, one value an answer. "
        "Counted are the tokens, where the usage at the end tells how many, else the pieces in which they "
        "came",
        lambda now: (
            ((model, counted), histogram)
            for model, counts in now.counts.models.items()
            for counted, histogram in counts.between.items()
        ),
    ),
    Definition(
        "histogram",
        "request_seconds",
        "seconds",
        MODEL,
        "From a request's arrival to the end of its answer",
        by_model(lambda counts: counts.request),
    ),
    Definition(
        "histogram",
        "stage_seconds",
        "seconds",
        ("stage",),
        "What the router itself adds: parse, tokenize, hash (block keys), match (what every rank holds; of "
        "pairs the choice, too), choose (cost), wait (for room, or for paused workers; only requests that "
        "had to), connect (only new connections)",
        each(lambda counts: counts.stages.items()),
    ),
    Definition(
        "histogram",
        "loop_delay_seconds",
        "seconds",
        NONE,
        "How late the router's event loop is, looked at ten times a second",
        one(lambda counts: counts.delays),
    ),
)
