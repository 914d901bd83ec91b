"""What the router tells of itself: records, logs, spans."""

from __future__ import annotations

from router.options.kinds import OTLP, PATH
from router.setting import Setting, integer, number, one_of

SETTINGS = {
    "record": Setting(
        PATH,
        "Directory to keep a record in of all events and decisions, for kv-router replay: blocks as "
        "codes, neither text nor token ids",
    ),
    "record_max_bytes": Setting(
        integer(16 * 2**20, 2**50),
        "Most that records may take there; the oldest parts are deleted; the default is 1 GiB",
        "bytes",
    ),
    "log_format": Setting(one_of(("human", "json")), "Lines for people, or one JSON object a line"),
    "log_level": Setting(
        one_of(("debug", "info", "warning", "error")), "Least severe lines logged on stderr"
    ),
    "log_requests": Setting(
        number(0, 1),
        "Share of requests that get a line in the log when they end; if it is not 0, all that fail do",
    ),
    "otlp": Setting(
        OTLP,
        "Where to send OpenTelemetry spans (OTLP over HTTP), such as http://127.0.0.1:4318; needs the "
        "extra kv-router[otel]. The variables OTEL_* hold, too",
    ),
}
