"""Clients' limits over all processes of a router: what is used in one counts in the others shortly after.

Each process grants from a whole limit; in the moment before it hears of the others, all of them may.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from router.core.said import MOST_LOADS, Spent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.api.keys import Keyring


class KeySpending:
    """The clients of one keyring; on the clock of `Door`."""

    def __init__(self, ring: Keyring) -> None:
        self._ring = ring

    def take(self) -> list[Spent]:
        """Return what clients with limits have used since the last call. About 0.5 us a client."""
        found: list[Spent] = []
        for client in self._ring.clients():
            if len(found) == MOST_LOADS:
                break
            requests, prompt_tokens = client.spent()
            if requests or prompt_tokens:
                found.append(Spent(client.name, requests, prompt_tokens))
        return found

    def hear(self, spent: Iterable[Spent]) -> None:
        """Count what clients have used elsewhere."""
        told = {each.client: each for each in spent}
        for client in self._ring.clients() if told else ():
            if client.name in told:
                used = told[client.name]
                client.charge(used.requests, used.prompt_tokens, perf_counter())
