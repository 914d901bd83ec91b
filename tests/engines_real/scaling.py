"""A plugin for vLLM: weights that come by no wire, since a trainer's wires (NCCL, CUDA IPC) need GPUs.

vLLM's own weight updates, with their calls, sessions and versions, are what is looked at. This only stands
at their end: `update_info` is `{"factor": f}`, and every weight is multiplied by it. The file is copied to
the engines' environment, where nothing of this project can be imported.
"""

from __future__ import annotations

from typing import Any

BACKEND = PLUGIN = "scaled_weights"


def register() -> None:
    """Make the backend known; vLLM calls this in each of its processes."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory  # noqa: PLC0415

    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, Scaled)


class Scaled:
    """One worker's end of the wire (vLLM's WeightTransferEngine)."""

    supports_draft_weight_update = False

    def __init__(self, _config: Any, _vllm_config: Any, _device: Any, model: Any) -> None:
        self._model = model

    def init_transfer_engine(self, init_info: Any) -> None:
        """There is nothing to connect to."""

    def reset_weight_update_target(self) -> None:
        """There is one model only."""

    def start_weight_update(self) -> None:
        """Weights change in place."""

    def update_weights(self, update_info: dict[str, float]) -> None:
        """Multiply every weight."""
        for weight in self._model.parameters():
            weight.data.mul_(update_info["factor"])

    def finish_weight_update(self) -> None:
        """All is done by now."""

    def shutdown(self) -> None:
        """There is nothing to let go of."""
