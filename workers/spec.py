"""What one stand-in is told to be. A wrong value raises SpecError, see `checks`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from workers.checks import check
from workers.engine.dialect import SGLANG, VLLM, VLLM_BYTES, Dialect
from workers.engine.loops import role_of
from workers.engine.rank import EngineConfig
from workers.engine.sampling import Sampler
from workers.engine.timing import PROFILES
from workers.engine.wire import SHAPES
from workers.faults import NONE
from workers.publisher import PublisherConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from workers.engine.events import Event
    from workers.engine.hicache import TierConfig
    from workers.engine.rank import PausedLoop, Role
    from workers.faults import Faults

EngineName: TypeAlias = Literal["sglang", "vllm"]
_DIALECTS: dict[tuple[str, str], Dialect] = {
    ("sglang", "int"): SGLANG,
    ("vllm", "int"): VLLM,
    ("vllm", "bytes"): VLLM_BYTES,
}


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker. Sizes in tokens; ports are the first rank's, 0 for any.

    `events`: None publishes nothing, as an engine without an events config. `adapters`: LoRA names served.
    `hash_form` and `event_shape`: what is on the wire, see `engine.wire`. `loop`: see `engine.loops`; the
    prefill and decode ones make one half of a pair, whose KV travels at `transfer_bandwidth` bytes/s, asked
    for at `bootstrap_port` (SGLang's bootstrap server, vLLM's side channel); each half waits `pair_seconds`
    for the other. `cache_report`: answers say how many of their prompt's tokens were cached.
    """

    engine: EngineName = "sglang"
    host: str = "127.0.0.1"
    port: int = 0
    model: str = "stand-in"
    page_size: int = 16
    capacity_tokens: int = 200_000
    dp: int = 1
    events: PublisherConfig | None = field(default_factory=PublisherConfig)
    paused_loop: PausedLoop = "publishing"
    profile: str = "fast"
    tokenizer: Path | None = None
    seed: int = 0
    max_model_len: int = 131_072
    chunk_tokens: int = 8192
    max_running: int = 256
    bigram: bool = False
    adapters: tuple[str, ...] = ()
    loop: str = "normal"
    decode_radix_cache: bool = False
    tiers: TierConfig | None = None
    faults: Faults = NONE
    transfer_bandwidth: float = 25e9
    bootstrap_port: int = 0
    pair_seconds: float = 300.0
    hash_form: Literal["int", "bytes"] = "int"
    event_shape: Literal["map", "array"] = "map"
    cache_report: bool = True

    def __post_init__(self) -> None:
        check(self)

    @property
    def role(self) -> Role:
        """Which half of a request this worker does, or both."""
        return role_of(self.loop)

    @property
    def hands_over(self) -> bool:
        """Whether other workers may ask this one for prompts."""
        return self.role == "prefill" or self.engine == "vllm"

    @property
    def publishes(self) -> bool:
        """Whether there are events: a decode worker has a cache to tell of only if told to have one."""
        return self.events is not None and (self.role != "decode" or self.decode_radix_cache)

    def shape(self) -> Callable[[Event], Any]:
        """Return the function that turns an event into what goes on the wire."""
        return SHAPES[self.engine, self.event_shape]

    def engine_config(self, vocabulary: tuple[int, ...]) -> EngineConfig:
        """Return the configuration of each of this worker's ranks, answering with tokens of `vocabulary`."""
        return EngineConfig(
            dialect=_DIALECTS[self.engine, self.hash_form],
            page_size=self.page_size,
            capacity_tokens=self.capacity_tokens,
            chunk_tokens=self.chunk_tokens,
            max_running=self.max_running,
            bigram=self.bigram,
            paused_loop=self.paused_loop,
            role=self.role,
            caches=self.role != "decode" or self.decode_radix_cache,
            tiers=self.tiers,
            transfer_bandwidth=self.transfer_bandwidth,
            profile=PROFILES[self.profile],
            sampler=Sampler(self.seed, vocabulary),
        )
