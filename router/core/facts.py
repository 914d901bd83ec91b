"""What a policy may know of the ranks for one request, in columns: one entry per rank, in one order.

Columns, because a decision among hundreds of ranks must not make an object for each; a `Candidate` is made
for the rank that is chosen, and for those that are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from router.core.blocks import PromptBlocks
from router.core.ledger import Load
from router.core.lineup import Lineup, lineup
from router.core.match import Match
from router.core.rank import Rank

if TYPE_CHECKING:
    # Nothing decodes facts, so msgspec needs no types; commands that only name policies would wait for these.
    import numpy as np  # noqa: TC004
    from numpy.typing import NDArray  # noqa: TC004

# Where a rank says nothing of its block size, in tokens.
_USUAL_BLOCK = 16


class Candidate(msgspec.Struct, gc=False):
    """One rank for one request; all in tokens.

    `cached_tokens` counts the usable prefix the rank has said it holds, `predicted_tokens` what is
    expected to follow it there; `uncached_tokens` is the rest of the prompt. `prefix`: see Facts.
    """

    rank: Rank
    cached_tokens: int
    predicted_tokens: int
    uncached_tokens: int
    prefix: int = 0

    @property
    def overlap_tokens(self) -> int:
        """The prefix that the engine is expected to report as cached."""
        return self.cached_tokens + self.predicted_tokens


class Facts(msgspec.Struct):
    """The columns of one request; they are the policies' to read, not to change.

    `loads`: the ranks' loads, whose `tokens` and `requests` are everybody's. `uncached`: tokens of the prompt
    that each rank would have to compute, where predictions that a rank keeps missing count in part. `lower`:
    of those it need not compute, the ones to be loaded back first, by tier and position (absent: none).
    `session`: what the client calls the conversation, None when it does not.
    `matches`: how far the prompt reaches, in blocks, for each group of the lineup. `full`: the share of ranks
    that have evicted something since their last reset, 0 to 1. `prefix`: the key of the longest match of any
    rank, 0 for none; `crowd`: how many can be expected to ask for it at once, 0 when that is not known.
    `column`: `uncached` once more, None where that is not at hand.
    """

    lineup: Lineup
    loads: Sequence[Load]
    prompt: PromptBlocks
    uncached: list[float]
    session: bytes | None = None
    lower: dict[str, dict[int, int]] = {}
    matches: list[Match] = []
    full: float = 0.0
    prefix: int = 0
    crowd: float = 0.0
    column: NDArray[np.int64] | None = None

    @property
    def ranks(self) -> Sequence[Rank]:
        """The ranks, in the order of all columns."""
        return self.lineup.seated

    @property
    def prompt_tokens(self) -> int:
        """The length of the prompt."""
        return self.prompt.count

    @property
    def block_size(self) -> int:
        """The block size of most ranks, in tokens."""
        groups = self.lineup.groups
        return groups[0].block_size if groups else _USUAL_BLOCK

    def candidate(self, at: int) -> Candidate:
        """Return one rank by itself, by its position. About 0.5 us."""
        rank, count = self.lineup.ranks[at], self.prompt.count
        slot = rank.view.slot
        for match in self.matches:
            held, reach = match.of(slot)
            if reach:
                size = rank.view.block_size or 0
                return Candidate(rank, held * size, (reach - held) * size, count - reach * size, self.prefix)
        return Candidate(rank, 0, 0, count, self.prefix)

    def match(self, rank: Rank) -> Match | None:
        """Return what was matched for ranks with the block size of this one, None where nothing was."""
        for group, match in zip(self.lineup.groups, self.matches, strict=False):
            if rank.view.slot in group.seats:
                return match
        return None

    def candidates(self) -> list[Candidate]:
        """Return every rank by itself."""
        return [self.candidate(at) for at in range(len(self.uncached))]

    def only(self, positions: Sequence[int]) -> Facts:
        """Return the facts of some of the ranks, in the order of `positions`."""
        ranks = self.lineup.ranks
        lower = {
            tier: {at: tokens[was] for at, was in enumerate(positions) if was in tokens}
            for tier, tokens in self.lower.items()
        }
        chosen = lineup([ranks[at] for at in positions])
        uncached = [self.uncached[at] for at in positions]
        return msgspec.structs.replace(
            self, lineup=chosen, loads=chosen.loads, uncached=uncached, lower=lower, column=None
        )
