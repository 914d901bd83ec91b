"""What a reader of all events from number 0 believes is what `/_truth` says, tier by tier."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.workers.edge import Edge, one, until
from workers.engine.hicache import TierConfig

if TYPE_CHECKING:
    from workers.spec import EngineName

TIERS = TierConfig(host=1.5, storage=4.0, prefetch=64, lookup=0.0)


def _believed(events: list[Any]) -> dict[str, list[Any]]:
    """Return the blocks of every tier, with copies, sorted; tiers that are empty are left out."""
    tiers: dict[str, list[Any]] = {}
    for event in events:
        if event["type"] == "AllBlocksCleared":
            tiers.clear()
            continue
        held = tiers.setdefault(event["medium"], [])
        for block in event["block_hashes"]:
            if event["type"] == "BlockStored":
                held.append(block)
            else:
                held.remove(block)
    return {medium: sorted(blocks) for medium, blocks in tiers.items() if blocks}


async def _sync(edge: Edge, engine: EngineName) -> None:
    if engine == "vllm":
        await edge.post("/pause?mode=keep")
        await edge.post("/resume")
        return
    await edge.post("/pause_generation", {"mode": "retract"})
    await edge.post("/update_weights_from_disk", {"model_path": "new"})
    await edge.post("/continue_generation")


@pytest.mark.parametrize(
    ("engine", "tiers", "loop"),
    [
        ("sglang", None, "normal"),
        ("sglang", None, "overlap"),
        ("sglang", TIERS, "normal"),
        ("sglang", TIERS, "overlap"),
        ("vllm", None, "normal"),
        ("vllm", TierConfig(host=1.5), "normal"),
    ],
)
async def test_events_and_truth_agree(engine: EngineName, tiers: TierConfig | None, loop: str) -> None:
    own = random.Random(f"{engine} {loop}")
    async with one(engine=engine, tiers=tiers, loop=loop, capacity_tokens=800) as edge:
        for number in range(20):
            first = own.randrange(8) * 500
            await edge.complete(list(range(first, first + own.randrange(20, 300))), own.randrange(1, 40))
            if number % 7 == 6:
                await _sync(edge, engine)
        await until(edge.worker.drivers[0].rank.idle)

        async def agree() -> bool:
            await edge.complete([1], 1)  # what vLLM has to say of an offload waits for its next step
            truth = (await edge.truth())["tiers"]
            held = {medium: sorted(blocks) for medium, blocks in truth.items() if blocks}
            return _believed(await edge.events()) == held

        await until(agree)
