"""The settings that a running router takes up, and the parts that hold them.

Limits, weights and rules are objects that many share; they are changed in place, so that nobody has to be
told and a request pays nothing for it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

from router.derived import capacity_of, rules_of
from router.observe import logs

if TYPE_CHECKING:
    from router.api.admission import Admission
    from router.api.retries import Retries
    from router.config import Config
    from router.core.breaker import BreakerRules
    from router.derived import Rules
    from router.fleet.discovery.discovery import Discovery
    from router.fleet.membership import Membership
    from router.front import Front
    from router.proxy.limits import Limits

T = TypeVar("T", "Limits", "BreakerRules")

LIVE = frozenset(
    {
        "workers",
        "uncached_weight",
        "active_weight",
        "saturated_weight",
        "copy_weight",
        "crowd_weight",
        "prefill_batch",
        "occupancy_weight",
        "adapter_weight",
        "adapter_slots",
        "prefill_speed",
        "host_speed",
        "disk_speed",
        "external_speed",
        "dynamo_temperature",
        "sticky_seconds",
        "hash_bound",
        "hash_tokens",
        "connect_seconds",
        "first_byte_seconds",
        "idle_seconds",
        "total_seconds",
        "route_limits",
        "retries",
        "retry_share",
        "retry_floor",
        "breaker_failures",
        "breaker_share",
        "breaker_outlier",
        "breaker_codes",
        "breaker_seconds",
        "drain_seconds",
        "max_inflight",
        "max_worker_inflight",
        "queue_size",
        "queue_seconds",
        "hold_seconds",
        "api_key",
        "log_level",
    }
)


@dataclass(slots=True)
class Live:
    """The parts, and which of the router's processes they are in."""

    rules: Rules
    retries: Retries
    admission: Admission
    membership: Membership
    discovery: Discovery
    front: Front
    index: int = 0

    @property
    def names(self) -> frozenset[str]:
        """The names of the settings that can be taken up: keys only where clients need any."""
        return LIVE if self.front.keys is not None else LIVE - {"api_key"}

    async def take(self, config: Config) -> frozenset[str]:
        """Take up all settings that are `LIVE`; return the names of those that stay what they were.

        Requests under way keep the time limits they began with.
        """
        new = rules_of(config)
        for name in new.weights.__struct_fields__:
            setattr(self.rules.weights, name, getattr(new.weights, name))
        _become(self.rules.limits, new.limits)
        _become(self.rules.breaker, new.breaker)
        self.retries.adjust(most=config.retries, share=config.retry_share, floor=config.retry_floor)
        self.admission.resize(capacity_of(config, self.index))
        self.membership.drain_seconds = config.drain_seconds
        self.discovery.settings(config.workers)
        logs.set_level(config.log_level)
        holds = self.front.keys is None or await self.front.keys.give(config.api_key)
        return frozenset() if holds else frozenset({"api_key"})


def _become(held: T, new: T) -> None:
    for field in fields(held):
        setattr(held, field.name, getattr(new, field.name))
