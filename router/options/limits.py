"""How long, and how many, requests may be."""

from __future__ import annotations

from router.options.kinds import DAY, ROUTE_LIMITS
from router.setting import Setting, integer, number

SETTINGS = {
    "connect_seconds": Setting(number(0.05, 3600), "Limit on connecting to a worker", "seconds"),
    "first_byte_seconds": Setting(
        number(0, DAY), "Limit on the wait for a worker's answer to begin; 0 is none", "seconds"
    ),
    "idle_seconds": Setting(
        number(0, DAY), "Limit on a pause within a worker's answer; 0 is none", "seconds"
    ),
    "total_seconds": Setting(
        number(0, DAY),
        "Limit on a request, from its arrival to the end of its answer; 0 is none",
        "seconds",
    ),
    "client_idle_seconds": Setting(
        number(0, DAY),
        "Limit on how long a client may take nothing of an answer that is there for it; it is then cut, "
        "at the worker too; 0 is none",
        "seconds",
    ),
    "route_limits": Setting(
        ROUTE_LIMITS,
        "Time limits of one route in seconds, of connect=, first-byte=, idle= and total=, such as "
        "/v1/embeddings,first-byte=5,total=30; repeat the flag for every route; the file a list of such "
        "texts or of mappings with path and the same keys",
        repeated=True,
    ),
    "hold_seconds": Setting(
        number(0, DAY),
        "How long a request waits while every worker that could serve it is paused",
        "seconds",
    ),
    "max_inflight": Setting(
        integer(0, 10**6),
        "Most requests under way at all workers together; what is over it waits; 0 is no limit. Divided "
        "among --processes: one that has its part under way lets requests wait while another has room",
        "requests",
    ),
    "max_worker_inflight": Setting(
        integer(0, 10**6),
        "Most requests under way at one worker; what finds all of them full waits; 0 is no limit; "
        "prefill/decode pairs are not counted. Divided among --processes",
        "requests",
    ),
    "queue_size": Setting(
        integer(0, 10**6),
        "Most requests of one model that wait for room, by the priority in x-kv-router-priority (-999 to "
        "999, higher first); more are answered with 429. Divided among --processes",
        "requests",
    ),
    "queue_seconds": Setting(
        number(0, DAY),
        "Longest wait for room, then 429; while every worker is paused, --hold-seconds more, then 503",
        "seconds",
    ),
}
