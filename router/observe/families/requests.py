"""Requests: how many came, how they ended, who waited, and by what they were routed."""

from __future__ import annotations

from router.observe.definition import MODEL, NONE, Definition, each, one

REQUESTS = (
    Definition(
        "counter",
        "requests",
        "requests",
        ("route", "status_class", "model"),
        "Requests answered, also those that failed; model is one that a worker serves, or other",
        lambda now: (
            ((*key, model), number)
            for model, counts in now.counts.models.items()
            for key, number in counts.requests.items()
        ),
    ),
    Definition(
        "counter",
        "retries",
        "requests",
        NONE,
        "Requests sent again to another worker before the first byte of an answer",
        one(lambda counts: counts.retries),
    ),
    Definition(
        "counter",
        "retries_refused",
        "requests",
        NONE,
        "Requests not sent again because there had been too many retries (--retry-share)",
        one(lambda counts: counts.retries_refused),
    ),
    Definition(
        "counter",
        "errors",
        "requests",
        ("fault",),
        "Requests that failed, by whose fault it was: client, worker, router, or capacity (no worker free)",
        each(lambda counts: counts.errors.items()),
    ),
    Definition(
        "counter",
        "client_requests",
        "requests",
        ("client", "outcome"),
        "Requests where clients need keys, by the name that stands behind the key: admitted, limited (over "
        "what the client may use), or refused (no valid key, and so no name)",
        lambda now: now.counts.clients().items(),
    ),
    Definition(
        "gauge",
        "waiting_requests",
        "requests",
        MODEL,
        "Requests that wait for room at a worker (--max-inflight, --max-worker-inflight)",
        lambda now: (
            ((model,), number)
            for model, number in {**dict.fromkeys(now.counts.models, 0), **now.counts.waiting()}.items()
        ),
    ),
    Definition(
        "gauge",
        "queue_limit_requests",
        "requests",
        NONE,
        "Most requests of one model that may wait for room (--queue-size)",
        one(lambda counts: counts.queue_limit()),
    ),
    Definition(
        "counter",
        "turned_away",
        "requests",
        ("reason",),
        "Requests refused for want of room: full (as many wait as may), timeout (waited too long), ousted "
        "(one of higher priority has taken the place)",
        each(lambda counts: counts.turned_away.items()),
    ),
    Definition(
        "gauge",
        "model_ready",
        "",
        MODEL,
        "1 while a worker, or a pair of them, can take requests for a model, else 0",
        each(lambda counts: ((model, int(serves)) for model, serves in counts.serving().items())),
        merge="min",
    ),
    Definition(
        "counter",
        "decisions",
        "requests",
        ("policy", "reason"),
        "Choices of a worker, by policy and by what decided",
        lambda now: now.counts.decisions.items(),
    ),
    Definition(
        "counter",
        "policy_failures",
        "requests",
        NONE,
        "Choices that kv made because the policy of --policy module:function raised, or returned no costs",
        one(lambda counts: counts.policy_failures()),
    ),
)
