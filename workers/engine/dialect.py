"""What differs between the two engines inside a rank: when blocks are stored, dropped and announced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from workers.engine.hashes import signed_hash, unsigned_hash, whole_hash

if TYPE_CHECKING:
    from workers.engine.hashes import HashForm


@dataclass(frozen=True, slots=True)
class Dialect:
    """One engine's habits.

    `coalesces`: events are joined in the queue. `holds_blocks`: memory is single blocks that may be copies
    of each other, not a tree. `stores_when_scheduled`: a block is cached as soon as a step is to fill it,
    not when its request ends. `publishes_every_step`: events leave inside each step and at no other time.
    `announces_start`: the first batch of a process is AllBlocksCleared.
    """

    name: str
    form: HashForm
    coalesces: bool = False
    holds_blocks: bool = False
    stores_when_scheduled: bool = False
    publishes_every_step: bool = False
    announces_start: bool = False


SGLANG = Dialect("sglang", signed_hash, coalesces=True, announces_start=True)
VLLM = Dialect(
    "vllm", unsigned_hash, holds_blocks=True, stores_when_scheduled=True, publishes_every_step=True
)
VLLM_BYTES = replace(VLLM, form=whole_hash)
