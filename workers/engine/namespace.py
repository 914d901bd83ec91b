"""What separates equal tokens from each other: the LoRA adapter and the cache salt."""

from __future__ import annotations

from dataclasses import dataclass

from workers.engine.hashes import prior_of


@dataclass(frozen=True, slots=True)
class Namespace:
    """One cache namespace; `lora_id` is the engine's internal number of the adapter."""

    lora_name: str | None = None
    lora_id: int | None = None
    cache_salt: str | None = None

    def prior(self) -> bytes:
        """Return the digest that the first page of a prompt is chained to."""
        return prior_of(self.cache_salt, self.lora_name)


PLAIN = Namespace()
