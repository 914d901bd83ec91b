"""What is kept of workers' caches, and for how long."""

from __future__ import annotations

from router.options.kinds import DAY, WEEK
from router.setting import Setting, integer, number

SETTINGS = {
    "predicted_ttl_seconds": Setting(
        number(0, DAY), "How long a routed prompt counts as held before an event confirms it", "seconds"
    ),
    "approximate_ttl_seconds": Setting(
        number(0, WEEK), "The same for workers without events, of which no more is known", "seconds"
    ),
    "predicted_max_blocks": Setting(
        integer(1, 10**8), "Most blocks counted as held without an event, per rank", "blocks"
    ),
    "index_max_blocks": Setting(
        integer(1024, 5 * 10**8),
        "Most distinct blocks kept in mind, over all workers, at 60 to 100 bytes each; over it, the ends "
        "of the prefixes matched longest ago are forgotten",
        "blocks",
    ),
    "replay_seconds": Setting(number(0.05, 3600), "Limit on a replay of lost events by a worker", "seconds"),
}
