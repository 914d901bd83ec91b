"""From the settings to what the parts of the router want to know. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.api.admission import Capacity
from router.core.breaker import BreakerRules
from router.core.cost import Weights
from router.options.policies import WEIGHTS
from router.proxy.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.config import Config


@dataclass(frozen=True, slots=True)
class Rules:
    """Objects that many share, and that change in place when settings do (`live`)."""

    weights: Weights
    limits: Limits
    breaker: BreakerRules


def rules_of(config: Config) -> Rules:
    """Return what is shared."""
    return Rules(weights_of(config), limits_of(config), breaker_rules_of(config))


def limits_of(config: Config) -> Limits:
    """Return the time limits of requests."""
    limits = Limits(
        connect_seconds=config.connect_seconds,
        first_byte_seconds=config.first_byte_seconds,
        idle_seconds=config.idle_seconds,
        total_seconds=config.total_seconds,
    )
    return limits.with_routes(config.route_limits)


def weights_of(config: Config) -> Weights:
    """Return what policies weigh."""
    return weights_from({weight: getattr(config, name) for weight, name in WEIGHTS.items()})


def weights_from(values: Mapping[str, float]) -> Weights:
    """Return weights by name; what is not given is as it is by default."""
    weights = Weights(**values)  # type: ignore[arg-type] # two of them are whole, as their settings are
    if isinstance(weights.active, float) and weights.active.is_integer():
        weights.active = int(weights.active)  # see Weights
    return weights


def breaker_rules_of(config: Config) -> BreakerRules:
    """Return when breakers open."""
    return BreakerRules(
        failures=config.breaker_failures,
        share=config.breaker_share,
        outlier=config.breaker_outlier,
        seconds=config.breaker_seconds,
        statuses=frozenset(config.breaker_codes),
    )


def capacity_of(config: Config, index: int = 0) -> Capacity:
    """Return how many requests may be under way, and wait, in one of the router's processes."""
    return Capacity(
        _part(config.max_inflight, index, config.processes),
        _part(config.max_worker_inflight, index, config.processes),
        _part(config.queue_size, index, config.processes),
        config.queue_seconds,
        config.hold_seconds,
    )


def _part(whole: int, index: int, count: int) -> int:
    """Return one process's part of a limit: all parts make the whole, but nobody has nothing."""
    part, rest = divmod(whole, count)
    return max(part + (index < rest), min(whole, 1))
