"""What one simulation is told to be."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from router.core.cost import DEFAULT_POLICY, Weights
from workers.engine.rank import EngineConfig
from workers.engine.sampling import OneToken
from workers.engine.timing import PROFILES

if TYPE_CHECKING:
    from workers.engine.hicache import TierConfig
    from workers.engine.timing import Profile

# Prompts have ids below; answers those above, so that no answer is ever a later prompt's prefix by chance.
VOCABULARY = 1 << 20


@dataclass(frozen=True, slots=True)
class Setup:
    """One fleet under one policy; `variant` names what is special about it.

    Sizes in tokens, times in seconds. `hears`: routers get the workers' events, `lag` seconds late; otherwise
    they know only what they have sent where. `replicas` routers take the requests in turn. `share`: what one
    sends is known to the others after so many seconds, None: never. `restarts`: so often a router forgets all
    it knows, `losses`: so often a worker's caches are emptied, both evenly over the run. `load_seconds`:
    how often routers ask workers how busy they are, 0 for never. `history`: batches that a worker keeps for a
    router that starts anew.
    """

    variant: str = ""
    policy: str = DEFAULT_POLICY
    weights: Weights = field(default_factory=Weights)
    workers: int = 8
    replicas: int = 1
    hears: bool = True
    lag: float = 0.0
    share: float | None = None
    restarts: int = 0
    losses: int = 0
    load_seconds: float = 1.0
    history: int = 10_000
    kv_tokens: int = 300_000
    page_size: int = 16
    tiers: TierConfig | None = None
    profile: Profile = PROFILES["h100-32b"]
    max_running: int = 256
    chunk_tokens: int = 8192
    loop: str = "normal"
    leaps: bool = True
    seed: int = 0
    predicted_ttl: float = 30.0
    approximate_ttl: float = 600.0
    predicted_bound: int = 262_144

    def engine(self) -> EngineConfig:
        """Return what each worker is."""
        return EngineConfig(
            page_size=self.page_size,
            capacity_tokens=self.kv_tokens,
            chunk_tokens=self.chunk_tokens,
            max_running=self.max_running,
            tiers=self.tiers,
            profile=self.profile,
            sampler=OneToken(VOCABULARY),
        )

    @property
    def longest(self) -> int:
        """The most tokens, prompt and answer, of a request that a worker can take (see `engine.rank`)."""
        return (self.kv_tokens // self.page_size - 1) * self.page_size

    def under(self, policy: str) -> Setup:
        """Return the same under another policy."""
        return replace(self, policy=policy)
