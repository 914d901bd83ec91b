"""What happens when workers fail: retries, and the breaker."""

from __future__ import annotations

from router.setting import Setting, integer, number

SETTINGS = {
    "retries": Setting(integer(0, 16), "Most other workers tried, before the first byte of an answer"),
    "retry_share": Setting(number(0, 1), "Most retries, as a share of the requests of the last ten seconds"),
    "retry_floor": Setting(
        number(0, 1e6), "Retries a second that are allowed besides, however few requests come"
    ),
    "breaker_failures": Setting(integer(0, 10**6), "Failures in a row that take a worker out; 0 is never"),
    "breaker_share": Setting(
        number(0, 1),
        "Share of failures among a worker's requests of the last ten seconds, of which there must be 20, "
        "that takes it out; 0 is never",
    ),
    "breaker_outlier": Setting(
        number(0, 1000),
        "A worker that fails so many times as often as the others of its model, and a tenth of its "
        "requests, is taken out; 0 is never",
    ),
    "breaker_codes": Setting(
        integer(400, 599),
        "Status of a worker's answer that counts as its failure; repeat the flag for several",
        repeated=True,
    ),
    "breaker_seconds": Setting(
        number(0.05, 3600),
        "How long a worker is taken out at first; doubled up to a minute by each trial that fails. The "
        "last worker of a model is never taken out",
        "seconds",
    ),
}
