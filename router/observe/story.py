"""One request as observers see it: records, request logs, spans and the page's last decisions.

An observer is called with a moment and the request's story so far. It runs on the event loop between two
steps of a request: it takes what it needs and returns; what it raises is logged and harms nobody. Where there
is no observer there is no story, and a request pays for a look at `Exchange.story`, about 20 ns each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from router.errors import RouterError, UnknownModel

if TYPE_CHECKING:
    from router.api.planner import Plan
    from router.core.cost import Policy, Weights
    from router.core.facts import Candidate, Facts
    from router.prompts.request import Kind
    from router.proxy.headers import Field

_log = logging.getLogger(__name__)


class Moment(Enum):
    """When an observer is called, in the order of a request's life; CHOSEN to OVER once for each try.

    CHOSEN: `story.decisions[-1]` is new (of a pair, two are). SENT: `story.tries[-1]` is new. COMPUTED: its
    prompt is no longer in flight. STARTED: the client has a first byte. REPORTED: the engine has told its
    counts. CONTRADICTED: they took blocks out of a view. TRUSTED: they say what predictions are worth. OVER:
    the try has left the ledger.
    """

    BEGAN = auto()
    PLANNED = auto()
    CHOSEN = auto()
    SENT = auto()
    COMPUTED = auto()
    STARTED = auto()
    REPORTED = auto()
    CONTRADICTED = auto()
    TRUSTED = auto()
    OVER = auto()
    ENDED = auto()


@dataclass(slots=True)
class Decision:
    """One choice: `facts` of every candidate, and the one `chosen`. `began` and `made` on `perf_counter`.

    The loads of their ranks are those of the choice only while the observer is called with CHOSEN.
    """

    policy: Policy
    weights: Weights
    facts: Facts
    chosen: Candidate
    began: float
    made: float


@dataclass(slots=True)
class Try:
    """One try at a worker, or at a pair; `now` on the loop's clock, the others on `perf_counter`.

    0 stands for what has not come to be. `keeps`: the decode rank of a pair is expected to hold the prompt,
    too. `prompt_tokens` and `cached_tokens` are the engine's own counts. `answered`: the worker's answer was
    a 200. `held`: how many blocks a contradicted claim has left. `came_true`: what share of predictions did.
    """

    first: Candidate
    decode: Candidate | None
    keeps: bool
    now: float
    sent: float
    computed: float = 0.0
    started: float = 0.0
    over: float = 0.0
    answered: bool = False
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    held: int = 0
    came_true: float = 1.0


class Told(Protocol):
    """The request that a story is of, whoever carries it; `began` on `perf_counter`, `headers` go onward."""

    began: float
    headers: list[Field]
    id: bytes
    status: int


class Story:
    """Times on `perf_counter`, 0 for what has not come. `error`: the code of the one it ended with, or "".

    `asked` is a model that nobody serves, as the client has named it.
    `notes` is room for what an observer keeps of a request, by the observer's name.
    """

    __slots__ = (
        "_observers",
        "asked",
        "began",
        "decisions",
        "ended",
        "error",
        "exchange",
        "kind",
        "notes",
        "plan",
        "planned",
        "tries",
    )

    def __init__(self, exchange: Told, kind: Kind, observers: tuple[Observer, ...]) -> None:
        self.exchange = exchange
        self.kind = kind
        self.began = exchange.began
        self.planned = self.ended = 0.0
        self.plan: Plan | None = None
        self.decisions: list[Decision] = []
        self.tries: list[Try] = []
        self.error = ""
        self.asked: str | None = None
        self.notes: dict[str, Any] = {}
        self._observers = observers
        self._tell(Moment.BEGAN)

    @property
    def status(self) -> int:
        """What the client got, once it has ended."""
        return self.exchange.status

    def plan_made(self, plan: Plan) -> None:
        """It is known where it may go."""
        self.plan = plan
        self.planned = perf_counter()
        self._tell(Moment.PLANNED)

    def chosen(self, policy: Policy, weights: Weights, facts: Facts, chosen: Candidate, began: float) -> None:
        """A rank has been chosen; the choice began then."""
        self.decisions.append(Decision(policy, weights, facts, chosen, began, perf_counter()))
        self._tell(Moment.CHOSEN)

    def sent(
        self, first: Candidate, now: float, decode: Candidate | None = None, *, keeps: bool = False
    ) -> None:
        """It has been entered in the ledger and in the predictions, at `now` on the loop's clock."""
        self.tries.append(Try(first, decode, keeps, now, perf_counter()))
        self._tell(Moment.SENT)

    def computed(self) -> None:
        """Its prompt is no longer in flight."""
        self.tries[-1].computed = perf_counter()
        self._tell(Moment.COMPUTED)

    def started(self) -> None:
        """The client has a first byte."""
        self.tries[-1].started = perf_counter()
        self._tell(Moment.STARTED)

    def reported(self, prompt_tokens: int | None, cached_tokens: int | None) -> None:
        """The engine has told its own counts."""
        last = self.tries[-1]
        last.prompt_tokens, last.cached_tokens = prompt_tokens, cached_tokens
        self._tell(Moment.REPORTED)

    def contradicted(self, held: int) -> None:
        """The blocks beyond the first `held` were taken out of the view that had claimed them."""
        self.tries[-1].held = held
        self._tell(Moment.CONTRADICTED)

    def trusted(self, share: float) -> None:
        """So much of what was predicted has come true, as the first rank's view has been told."""
        self.tries[-1].came_true = share
        self._tell(Moment.TRUSTED)

    def over(self, *, answered: bool) -> None:
        """The try has left the ledger."""
        last = self.tries[-1]
        last.over, last.answered = perf_counter(), answered
        self._tell(Moment.OVER)

    def failed(self, error: RouterError) -> None:
        """It ends with an error of the router's, or is cut by one."""
        self.error = error.code
        if isinstance(error, UnknownModel):
            self.asked = error.model

    def end(self) -> None:
        """It is over."""
        self.ended = perf_counter()
        self._tell(Moment.ENDED)

    def _tell(self, moment: Moment) -> None:
        for observe in self._observers:
            try:
                observe(moment, self)
            except Exception:  # noqa: BLE001 - who watches a request must not be able to break it
                _log.exception("an observer failed at %s", moment.name)


Observer: TypeAlias = Callable[[Moment, Story], None]
