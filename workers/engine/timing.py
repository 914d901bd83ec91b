"""How long a step takes on the machine that is imitated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Costs in seconds.

    `prefill_overhead` per prefill batch, `per_token` per uncached prompt token, `decode` per decode step
    plus `decode_per_request` for every request in it.
    """

    prefill_overhead: float
    per_token: float
    decode: float
    decode_per_request: float = 0.0

    def __str__(self) -> str:
        """Return the costs as a help text has them, in milliseconds and microseconds."""
        tokens, requests = self.per_token * 1e6, self.decode_per_request * 1e6
        batch, step = self.prefill_overhead * 1e3, self.decode * 1e3
        return f"{batch:g} ms + {tokens:.3g} us, {step:g} ms + {requests:g} us"

    def prefill_seconds(self, uncached_tokens: int) -> float:
        """Return how long a prefill batch with that many uncached tokens runs."""
        return self.prefill_overhead + self.per_token * uncached_tokens

    def decode_seconds(self, requests: int) -> float:
        """Return how long one decode step of a batch runs."""
        return self.decode + self.decode_per_request * requests


# Reference figures of real machines. `fast` keeps the 8B proportions at a size tests and a demo can wait for,
# `slow` makes what runs beside the stand-ins on a busy machine matter little.
PROFILES: dict[str, Profile] = {
    "instant": Profile(0.0, 0.0, 0.0),
    "fast": Profile(0.002, 20e-6, 0.001),
    "slow": Profile(1.0, 0.008, 0.3, 0.001),
    "8b-h100": Profile(0.030, 250e-6, 0.012, 20e-6),
    "70b-tp8": Profile(0.080, 500e-6, 0.025, 40e-6),
    "qwen3-32b-2xh100": Profile(0.040, 1 / 15_900, 0.020, 30e-6),
}
# The same under the short name that simulations are called with.
PROFILES["h100-32b"] = PROFILES["qwen3-32b-2xh100"]
