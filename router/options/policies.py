"""How a worker is chosen, and what policies weigh."""

from __future__ import annotations

from router.options.kinds import DAY, HEADER, POLICY
from router.setting import Setting, integer, number, one_of

# What policies weigh, by the names that these weights have inside: the settings that they are set by.
WEIGHTS = {
    "uncached": "uncached_weight",
    "active": "active_weight",
    "saturated": "saturated_weight",
    "copy": "copy_weight",
    "crowd": "crowd_weight",
    "batch": "prefill_batch",
    "occupancy": "occupancy_weight",
    "adapter": "adapter_weight",
    "adapter_slots": "adapter_slots",
    "prefill_speed": "prefill_speed",
    "host_speed": "host_speed",
    "disk_speed": "disk_speed",
    "external_speed": "external_speed",
    "temperature": "dynamo_temperature",
    "sticky_seconds": "sticky_seconds",
    "bound": "hash_bound",
    "prefix_tokens": "hash_tokens",
}
SETTINGS = {
    "policy": Setting(
        POLICY,
        "How a worker is chosen: by a rule that the router has, or by a function of yours, of (facts, "
        "weights), that returns one cost per rank",
    ),
    "uncached_weight": Setting(
        number(0, 1000),
        "Policy kv: how often each prompt token counts that the worker does not hold, while workers are idle",
    ),
    "saturated_weight": Setting(
        number(1, 1000),
        "Policy kv: how many times as often it counts when all workers are busy; 1: no more",
    ),
    "copy_weight": Setting(
        number(0, 1000),
        "Policy kv: how often more it counts when caches are full, or when what is held of the prompt has "
        "been asked for but once",
    ),
    "crowd_weight": Setting(
        number(0, 1000),
        "Policy kv: how much less it counts where several come at once for what is held of the prompt, as "
        "they did before: it is divided by 1 and this times those others for each worker; 0: no less",
    ),
    "prefill_batch": Setting(
        integer(0, 10_000_000),
        "Policy kv: prompt tokens that an SGLang worker computes at once (its --chunked-prefill-size): what "
        "prompts of one such batch have in common is computed for each; 0: once for all",
        "tokens",
    ),
    "active_weight": Setting(
        number(0, 1e6), "Policy kv: what each request running on a worker counts for", "tokens"
    ),
    "allow_policy_header": Setting(
        one_of(("off", "on")), "Whether a request may name its policy in x-kv-router-policy"
    ),
    "session_header": Setting(HEADER, "Policy session: the header that tells one conversation from another"),
    "occupancy_weight": Setting(
        number(0, 1e9), "Policy kv: what a full KV cache counts for, a half-full one half", "tokens"
    ),
    "adapter_weight": Setting(
        number(0, 1e9), "Policy kv: what it counts for that a LoRA adapter has to be loaded", "tokens"
    ),
    "adapter_slots": Setting(
        integer(0, 64),
        "Policy kv: LoRA adapters that a rank has loaded at a time; those of its last requests are taken "
        "to be them",
    ),
    "prefill_speed": Setting(
        number(1, 1e9),
        "What a rank computes of prompts; what is loaded back from a lower tier costs that much less "
        "than computing it as the tier is faster",
        "tokens/s",
    ),
    "host_speed": Setting(number(1, 1e9), "What a rank loads back from the host's memory", "tokens/s"),
    "disk_speed": Setting(number(1, 1e9), "What a rank loads back from a disk", "tokens/s"),
    "external_speed": Setting(number(1, 1e9), "What a rank loads back from any other storage", "tokens/s"),
    "dynamo_temperature": Setting(
        number(0, 100),
        "Policy dynamo: temperature of the draw among costs, as shares of their spread; 0 is the least",
    ),
    "sticky_seconds": Setting(
        number(0, DAY),
        "Policy sticky: how much later a first token may come from where the prompt is held",
        "seconds",
    ),
    "hash_bound": Setting(
        number(1, 1000),
        "Policy prefix_hash: a rank is passed over that has so many times the mean of running requests",
    ),
    "hash_tokens": Setting(
        integer(1, 10**6), "Policy prefix_hash: how much of a prompt's beginning decides", "tokens"
    ),
    "load_seconds": Setting(
        number(0, 60),
        "Time between two questions about a worker's load, where it does not tell by itself; 0: none is "
        "asked, and none listened to",
        "seconds",
    ),
    "pd_min_uncached": Setting(
        integer(0, 10**7),
        "Where there are prefill and decode workers: a prompt of which a worker that can do all of a "
        "request (role both, or vLLM's decode) would compute less goes to that worker; 0 is never",
        "tokens",
    ),
}
