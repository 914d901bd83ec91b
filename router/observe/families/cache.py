"""The cache's truth: what was expected of the workers' caches, and what the engines then said."""

from __future__ import annotations

from router.observe.definition import MODEL, Definition, by_model, each

CACHE = (
    Definition(
        "counter",
        "prompt_tokens",
        "tokens",
        MODEL,
        "Tokens of the prompts sent to workers",
        by_model(lambda counts: counts.prompt_tokens),
    ),
    Definition(
        "counter",
        "overlap_tokens",
        "tokens",
        MODEL,
        "Of them, expected to be cached by the worker they were sent to",
        by_model(lambda counts: counts.overlap_tokens),
    ),
    Definition(
        "counter",
        "checked_prompt_tokens",
        "tokens",
        MODEL,
        "Tokens of the prompts whose engine has then reported how many were cached",
        by_model(lambda counts: counts.checked_prompt_tokens),
    ),
    Definition(
        "counter",
        "checked_overlap_tokens",
        "tokens",
        MODEL,
        "Of them, expected to be cached",
        by_model(lambda counts: counts.checked_overlap_tokens),
    ),
    Definition(
        "counter",
        "cached_tokens",
        "tokens",
        MODEL,
        "Of them, cached as the engine has reported",
        by_model(lambda counts: counts.cached_tokens),
    ),
    Definition(
        "counter",
        "saved_tokens",
        "tokens",
        MODEL,
        "Prompt tokens that no worker had to compute: cached as reported, or as expected where nothing was",
        by_model(lambda counts: counts.saved_tokens),
    ),
    Definition(
        "counter",
        "generated_tokens",
        "tokens",
        MODEL,
        "Tokens of answers, where the engine has reported them",
        by_model(lambda counts: counts.generated_tokens),
    ),
    Definition(
        "histogram",
        "prediction_error_tokens",
        "tokens",
        MODEL,
        "Cached tokens reported minus expected, per request; le 0 less le -1 are the exact ones",
        by_model(lambda counts: counts.prediction_error),
    ),
    Definition(
        "counter",
        "token_checks",
        "prompts",
        ("outcome",),
        "Prompts whose tokens were compared with the engine's own count or ids: right or wrong",
        each(lambda counts: counts.token_checks.items()),
    ),
)
