"""What the router counts while it works: plain integers and small histograms, fed in nanoseconds.

Nothing here knows Prometheus; `router.observe.exposition` reads these values when somebody scrapes. What a
client could make up is folded into a fixed set before it becomes a label: a model counts by its own name once
a worker has said that it serves it. What is counted per worker or rank is not kept here but in the fleet, so
that a worker that is gone leaves nothing behind.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from router.core.index import IndexSize
from router.errors import Fault, RouterError
from router.observe.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from router.observe.rows import ShareRow

Stage = Literal["parse", "tokenize", "hash", "match", "choose", "wait", "connect"]
Counting = Literal["tokens", "pieces"]

OTHER = "other"
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

# A worker's model may have any number of names over time; those past so many count as "other".
MOST_MODELS = 100

ANSWER_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600, 1800)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)
STAGE_SECONDS = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 0.005, 0.01, 0.05, 0.1, 0.5, 5, 60)
DELAY_SECONDS = (1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
# Signed, with a bucket of its own for an exact prediction: (-1, 0].
ERROR_TOKENS = (-16384, -4096, -1024, -256, -64, -16, -1, 0, 16, 64, 256, 1024, 4096, 16384)


class ModelCounts:
    """The counts of one model's requests; add to the integers and the mapping's values directly.

    `requests` by (route, class of status). Tokens are of prompts: sent, and expected to be cached when they
    were sent; of the prompts whose engine then said what was cached the same two again, `checked`, beside
    what it said; and those `saved`, that no worker had to compute. `generated` are tokens of answers, where
    told.
    `first_token` and `between` are of streams.
    """

    __slots__ = (
        "between",
        "cached_tokens",
        "checked_overlap_tokens",
        "checked_prompt_tokens",
        "first_token",
        "generated_tokens",
        "overlap_tokens",
        "prediction_error",
        "prompt_tokens",
        "request",
        "requests",
        "saved_tokens",
    )

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.first_token = Histogram(ANSWER_SECONDS)
        self.between: dict[Counting, Histogram] = {
            name: Histogram(TOKEN_SECONDS) for name in get_args(Counting)
        }
        self.request = Histogram(ANSWER_SECONDS)
        self.prediction_error = Histogram(ERROR_TOKENS)
        self.prompt_tokens = self.overlap_tokens = self.saved_tokens = self.generated_tokens = 0
        self.checked_prompt_tokens = self.checked_overlap_tokens = self.cached_tokens = 0

    def finished(self, overlap: int, prompt: int, cached: int | None) -> None:
        """Count a prompt that was answered: what was expected of the cache, and what the engine says of it.

        In tokens; `cached` is None where it does not say.
        """
        if cached is None:
            self.saved_tokens += overlap
            return
        self.saved_tokens += cached
        self.cached_tokens += cached
        self.checked_overlap_tokens += overlap
        self.checked_prompt_tokens += prompt
        self.prediction_error.observe(cached - overlap)


class Record(Protocol):
    """What is kept of events and decisions; `recording`: it has not ended by itself."""

    @property
    def recording(self) -> bool:
        """Whether it goes on."""

    @property
    def bytes(self) -> int:
        """How many have been written."""


class Metrics:
    """The process's counts; add to the integers and the mappings' values directly.

    `decisions` by (policy, reason), both names of the router's own. `errors` by whose fault it was, where
    `capacity` is nobody's: no worker could take the request. `stages` are what the router itself adds to a
    request, in seconds, `delays` how late its event loop is. `token_checks` are comparisons of our
    tokens with the engines', by outcome: right or wrong. `clients` are requests by the name of the client,
    which is the operator's, and outcome: admitted, limited, or refused for want of a key. `discovery` says of
    each source of workers whether it fails. `waiting` tells of
    each model how many requests wait, where any do, `serving` whether any worker can take one.
    """

    __slots__ = (
        "clients",
        "decisions",
        "delays",
        "discovery",
        "errors",
        "held_bytes",
        "index",
        "models",
        "policy_failures",
        "queue_limit",
        "record",
        "retries",
        "retries_refused",
        "serving",
        "share",
        "spans_lost",
        "stages",
        "token_checks",
        "turned_away",
        "waiting",
    )

    def __init__(self) -> None:
        self.models: dict[str, ModelCounts] = {OTHER: ModelCounts()}
        self.decisions: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.errors: dict[Fault, int] = dict.fromkeys(get_args(Fault), 0)
        self.retries = self.retries_refused = 0
        self.waiting: Callable[[], Mapping[str, int]] = dict
        self.queue_limit: Callable[[], int] = int
        self.turned_away: dict[str, int] = {"full": 0, "timeout": 0, "ousted": 0}
        self.index: Callable[[], IndexSize] = IndexSize
        self.serving: Callable[[], Mapping[str, bool]] = dict
        self.held_bytes: Callable[[], int] = int
        self.policy_failures: Callable[[], int] = int
        self.spans_lost: Callable[[], int] = int
        self.stages: dict[Stage, Histogram] = {name: Histogram(STAGE_SECONDS) for name in get_args(Stage)}
        self.delays = Histogram(DELAY_SECONDS)
        self.share: Callable[[], ShareRow | None] = _alone
        self.token_checks: dict[str, int] = {}
        self.record: Record | None = None
        self.discovery: Callable[[], Mapping[str, bool]] = dict
        self.clients: Callable[[], Mapping[tuple[str, str], int]] = dict

    def of(self, model: str | None) -> ModelCounts:
        """Return the counts of a model that a worker serves; None: it is none of theirs. About 0.1 us."""
        found = self.models.get(model or OTHER)
        return found if found is not None else self._first(model or OTHER)

    def _first(self, model: str) -> ModelCounts:
        if len(self.models) > MOST_MODELS:
            return self.models[OTHER]
        return self.models.setdefault(model, ModelCounts())

    def record_state(self) -> str:
        """Return whether there is a record, or was one."""
        if self.record is None:
            return "off"
        return "on" if self.record.recording else "ended"

    def answered(self, route: str, status: int, seconds: float, model: str | None = None) -> None:
        """Count a request that has ended, `seconds` after it came. Any path and status may be given."""
        counts = self.of(model)
        counts.requests[route if route in ROUTES else OTHER, _class_of(status)] += 1
        counts.request.observe(seconds)

    def unread(self, status: int) -> None:
        """Count what was refused with this status before there was a request: the client's fault."""
        self.of(None).requests[OTHER, _class_of(status)] += 1
        self.errors["client"] += 1

    def failed(self, error: RouterError) -> None:
        """Count a request that failed, by whose fault it was."""
        self.errors[error.fault] += 1

    def decided(self, hashing: float, matching: float, choosing: float) -> None:
        """Count what a decision has taken, in seconds."""
        stages = self.stages
        stages["hash"].observe(hashing)
        stages["match"].observe(matching)
        stages["choose"].observe(choosing)

    def chosen(self, model: str, policy: str, overlap_tokens: int, prompt_tokens: int) -> None:
        """Count a choice: by the overlap that the rank has, or by load alone where it has none. In tokens."""
        self.decisions[policy, "overlap" if overlap_tokens else "load"] += 1
        counts = self.of(model)
        counts.prompt_tokens += prompt_tokens
        counts.overlap_tokens += overlap_tokens


def _class_of(status: int) -> str:
    kind = status // 100
    return STATUS_CLASSES[kind if 0 < kind < len(STATUS_CLASSES) else 0]


def _alone() -> None:
    """Nothing is shared with other routers."""
