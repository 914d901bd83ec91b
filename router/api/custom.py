"""An operator's own policy: `module:function`, checked at start, guarded while it runs.

The function has the signature of those in `costs`: `function(facts: Facts, weights: Weights)` returns one
finite number per rank, in the order of the facts' columns, and the least wins. It is called in the event
loop for every request, so it must be quick and must not wait. What raises, or returns anything else, costs no
request: kv decides instead, which is counted, and told the log at most once a minute; so is one that takes
5 ms and more.
"""

from __future__ import annotations

import importlib
import logging
import sys
import time
from math import isfinite
from typing import TYPE_CHECKING

from router.core import costs
from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.bucket import Bucket
from router.core.cost import Policy
from router.core.decide import gather
from router.core.index import Index
from router.core.ledger import Load
from router.core.rank import Rank
from router.core.view import View
from router.core.weights import Weights
from router.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.core.costs import Amounts
    from router.core.facts import Facts
    from router.core.terms import Terms

_LOG_SECONDS = 60.0
_SLOW_SECONDS = 0.005
# The newest call's part in what calls take: one that was only held up makes none slow.
_SHARE = 1 / 16
_NUMBERS = {int, float}
_log = logging.getLogger(__name__)


class WrongCostsError(Exception):
    """A policy has returned what no costs are; the text says what was expected."""


class Guard:
    """Calls the function; `failures` counts the times that kv had to decide. `clock` is in seconds."""

    def __init__(
        self,
        name: str,
        function: Callable[[Facts, Weights], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.failures = 0
        self._seconds = 0.0
        self._clock = clock
        self._slow_lines = Bucket(1 / _LOG_SECONDS, 1)
        self._name = name
        self._function = function
        self._lines = Bucket(1 / _LOG_SECONDS, 1)

    def __call__(self, facts: Facts, weights: Weights) -> Amounts:
        """Return the function's costs, or kv's. About 1 us, and 10 ns a rank, over the function's own."""
        uncached = facts.uncached.copy()
        began = self._clock()
        try:
            return checked(self._function(facts, weights), len(uncached))
        except BaseException as error:  # noqa: BLE001 - it cannot wait: what is raised is its own, whatever it is
            self._failed(error)
        finally:
            self._took(self._clock() - began)
        facts.uncached = uncached  # whatever the function has done to it
        return costs.kv(facts, weights)

    def _took(self, seconds: float) -> None:
        self._seconds += (seconds - self._seconds) * _SHARE
        if self._seconds > _SLOW_SECONDS and not self._slow_lines.take(1, self._clock()):
            what = "policy %s takes %.0f ms for a choice, in which no other request and no stream goes on"
            _log.warning(what, self._name, self._seconds * 1e3)

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        if not self._lines.take(1, self._clock()):
            what = "policy %s: kv decides instead (%d so far): %s"
            _log.warning(what, self._name, self.failures, said(error))


def checked(amounts: object, count: int) -> Sequence[float]:
    """Return costs that are ones, as plain numbers. Raises WrongCostsError."""
    if not isinstance(amounts, list | tuple):
        raise WrongCostsError(f"it returns {type(amounts).__name__}, expected a list of {count} numbers")
    if len(amounts) != count:
        raise WrongCostsError(f"it returns {len(amounts)} costs for {count} ranks")
    kinds = set(map(type, amounts))
    for kind in kinds:
        if not issubclass(kind, int | float):
            raise WrongCostsError(f"it returns a cost of type {kind.__name__}, expected finite numbers")
    if not all(map(isfinite, amounts)):
        raise WrongCostsError("it returns a cost that is not finite")
    return amounts if kinds <= _NUMBERS else [float(amount) for amount in amounts]


def load_policy(name: str) -> tuple[Policy, Guard]:
    """Return the policy `module:function`, found as Python finds modules, or in the working directory.

    Raises ConfigError, one line, when there is none or it fails on the facts of made-up ranks.
    """
    function = _found(name)
    for facts in samples():
        try:
            checked(function(facts, Weights()), len(facts.uncached))
        except BaseException as error:
            what = f"fails on sample facts of {len(facts.uncached)} ranks"
            raise ConfigError(f"--policy {name}: {what}: {said(error)}") from error
    guard = Guard(name, function)
    return Policy(name, guard, _terms, uses_session=True), guard


def _found(name: str) -> Callable[[Facts, Weights], object]:
    module_name, _, function_name = name.partition(":")
    if "" not in sys.path and "." not in sys.path:
        sys.path.append(".")
    try:
        found = importlib.import_module(module_name)
        for part in function_name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"--policy {name}: cannot be loaded: {said(error)}") from error
    if not callable(found):
        raise ConfigError(f"--policy {name}: expected a function, got {type(found).__name__}")
    return found


def samples() -> list[Facts]:
    """Return facts such as a policy will see: one rank and several, idle and busy, hits and none."""
    index = Index()
    loads = Load(), Load(inflight_tokens=9000, active_requests=12, context_tokens=40_000, last_dispatch=7)
    ranks = [
        Rank(f"http://sample-{at}", 0, View(index, "sample", block_size=16), load)
        for at, load in enumerate(loads)
    ]
    prompt = PromptBlocks(pack_tokens(range(1, 401)), 400, Namespace("sample"))
    ranks[1].view.predicted.add(prompt.keys(16, bigram=False)[:10], 0.0)
    unread = PromptBlocks(b"", 400, Namespace("sample", "adapter"))
    return [
        gather(index, some, one, name)
        for some in (ranks, ranks[:1])
        for one, name in ((prompt, b"session"), (unread, None))
    ]


def said(error: BaseException) -> str:
    """Return an error in one line of moderate length."""
    if isinstance(error, WrongCostsError):
        return str(error)
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _terms(_facts: Facts, _weights: Weights, _at: int) -> Terms:
    """What goes into the costs of a stranger's function is not known."""
    return {}
