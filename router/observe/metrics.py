"""What the router counts while it works: plain integers and small histograms, fed in nanoseconds.

Nothing here knows Prometheus; `router.observe.exposition` reads these values when somebody scrapes. What a
client could make up is folded into a fixed set before it becomes a label. What is counted per worker or rank
is not kept here but in the fleet, so that a worker that is gone leaves nothing behind.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal, get_args

from router.core.index import IndexSize
from router.errors import Fault, RouterError
from router.observe.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Stage = Literal["parse", "tokenize", "choose"]

OTHER_ROUTE = "other"
ROUTES = frozenset(
    {
        "/v1/completions",
        "/v1/chat/completions",
        "/generate",
        "/v1/responses",
        "/v1/messages",
        "/v1/models",
        "/health",
        "/ready",
        "/metrics",
        "/workers",
        "/explain",
    }
)
STATUS_CLASSES = ("other", "1xx", "2xx", "3xx", "4xx", "5xx")

ANSWER_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600, 1800)
STAGE_SECONDS = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5)
# Signed, with a bucket of its own for an exact prediction: (-1, 0].
ERROR_TOKENS = (-16384, -4096, -1024, -256, -64, -16, -1, 0, 16, 64, 256, 1024, 4096, 16384)


class Metrics:
    """The process's counts; add to the integers and the mappings' values directly.

    `decisions` by (policy, reason), both names of the router's own. `errors` by whose fault it was, where
    `capacity` is nobody's: no worker could take the request. Tokens are of prompts: sent, expected to be
    cached when they were sent, and cached as engines then reported. `token_checks` are comparisons of our
    tokens with the engines', by outcome: right or wrong. `clients` are requests by the name of the client,
    which is the operator's, and outcome: admitted, limited, or refused for want of a key.
    """

    __slots__ = (
        "cached_tokens",
        "clients",
        "decisions",
        "errors",
        "first_byte",
        "index",
        "overlap_tokens",
        "prediction_error",
        "prompt_tokens",
        "request",
        "requests",
        "retries",
        "retries_refused",
        "stages",
        "token_checks",
        "turned_away",
        "waiting",
        "waits",
    )

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.decisions: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.errors: dict[Fault, int] = dict.fromkeys(get_args(Fault), 0)
        self.retries = self.retries_refused = 0
        self.waits = Histogram(ANSWER_SECONDS)
        self.waiting: Callable[[], int] = int
        self.turned_away: dict[str, int] = {"full": 0, "timeout": 0, "ousted": 0}
        self.index: Callable[[], IndexSize] = IndexSize
        self.prompt_tokens = 0
        self.overlap_tokens = 0
        self.cached_tokens = 0
        self.first_byte = Histogram(ANSWER_SECONDS)
        self.request = Histogram(ANSWER_SECONDS)
        self.stages: dict[Stage, Histogram] = {name: Histogram(STAGE_SECONDS) for name in get_args(Stage)}
        self.prediction_error = Histogram(ERROR_TOKENS)
        self.token_checks: dict[str, int] = {}
        self.clients: Callable[[], Mapping[tuple[str, str], int]] = dict

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended, `seconds` after it came. Any path and status may be given."""
        kind = status // 100
        self.requests[
            route if route in ROUTES else OTHER_ROUTE,
            STATUS_CLASSES[kind if 0 < kind < len(STATUS_CLASSES) else 0],
        ] += 1
        self.request.observe(seconds)

    def reported(self, expected: int, cached: int) -> None:
        """Count an engine's own `cached_tokens` against the overlap that was expected of it, in tokens."""
        self.cached_tokens += cached
        self.prediction_error.observe(cached - expected)

    def failed(self, error: RouterError) -> None:
        """Count a request that failed, by whose fault it was."""
        self.errors[error.fault] += 1

    def chosen(self, policy: str, overlap_tokens: int, prompt_tokens: int) -> None:
        """Count a choice: by the overlap that the rank has, or by load alone where it has none. In tokens."""
        self.decisions[policy, "overlap" if overlap_tokens else "load"] += 1
        self.prompt_tokens += prompt_tokens
        self.overlap_tokens += overlap_tokens
