"""What an operator can weigh; each policy reads what it needs."""

from __future__ import annotations

import msgspec

HOST, DISK = "host", "disk"
# The tiers that engines name (SGLang 0.5.23, vLLM 0.32) and what they are; any other is a storage far away.
KINDS = {"CPU_PINNED": HOST, "CPU": HOST, "DISK": DISK}


class Weights(msgspec.Struct):
    """The weights of all policies; whole ones as int where it can be, which is quicker to reckon with.

    `uncached`: how often an own token counts that has to be computed, while ranks are idle and have room in
    their caches; `saturated`: how many times that when all are busy; `copy`: how often more when caches are
    full, or what is held has been asked for but once; `crowd`: how much less where many come for it at once,
    again and again (kv; `core.price` says why). `batch`: tokens that a rank computes at once (kv), 0 where
    prompts within a batch share. At 3, 1, 0, 0 and 0 a token always counts alike.
    `active`: tokens a running request counts for (kv). `occupancy`: tokens a full KV cache counts for (kv),
    half of them a half-full one. `adapter`: tokens the loading of a LoRA adapter counts for, where it is not
    among the last `adapter_slots` used (kv).
    `prefill_speed`, `host_speed`, `disk_speed`, `external_speed`: tokens a second that a rank computes, and
    loads back from each tier. `temperature`: of the draw, in shares of the spread of costs, 0 for the least
    (dynamo). `sticky_seconds`: how much later a first token may come from where the prompt is held (sticky).
    `bound`: how many times the mean of running requests a rank takes before it is passed over, and
    `prefix_tokens`: how much of the beginning of a prompt decides (prefix_hash).
    """

    uncached: float = 1.5
    active: float = 512
    saturated: float = 10.0
    copy: float = 2.0
    crowd: float = 4.0
    batch: int = 8192
    occupancy: float = 0.0
    adapter: float = 1024.0
    adapter_slots: int = 4
    prefill_speed: float = 16_000.0
    host_speed: float = 200_000.0
    disk_speed: float = 20_000.0
    external_speed: float = 40_000.0
    temperature: float = 0.0
    sticky_seconds: float = 18.0
    bound: float = 1.25
    prefix_tokens: int = 256

    def price(self, tier: str) -> float:
        """Return what loading a token back from a tier costs, in tokens computed."""
        kind = KINDS.get(tier)
        if kind == HOST:
            return self.prefill_speed / self.host_speed
        return self.prefill_speed / (self.disk_speed if kind == DISK else self.external_speed)
