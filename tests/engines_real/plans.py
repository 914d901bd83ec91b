"""The servers of the suite, two of which are up at a time. Their ports are none that systems give out."""

from __future__ import annotations

from tests.engines_real.engine import Plan

# Blocks named by numbers, as vLLM does by default, and adapters that can be loaded; blocks named by digests.
INTS = Plan("ints", 18_000, 18_100, 18_200, environment=(("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True"),))
BYTES = Plan("bytes", 18_010, 18_110, 18_210, environment=(("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "0"),))
# Two ranks with room for two of the longest prompts each, so that they have to evict; and no history.
ROOM_BLOCKS = 128
RANKS = Plan("ranks", 18_020, 18_120, None, ("--num-gpu-blocks-override", str(ROOM_BLOCKS)), ranks=2)
