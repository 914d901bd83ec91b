"""What a request is entered in while a worker has it: the predictions, and the ledger."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.api.planner import Plan
    from router.core.accounts import Accounts, Entry
    from router.core.facts import Candidate
    from router.core.rank import Rank
    from router.observe.story import Story


class Books:
    """`accounts` are this process's; needs a running loop, whose clock it goes by."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._clock = asyncio.get_running_loop().time

    def enter(self, plan: Plan, candidate: Candidate, story: Story | None) -> tuple[Iterable[int], Entry]:
        """Note the request in the predictions and in the ledger."""
        now = self._clock()
        accounts = self._accounts
        keys = accounts.predict(candidate, plan.prompt, now)
        ticket = accounts.open(candidate.rank.load, candidate.uncached_tokens, plan.prompt.count)
        if story is not None:
            story.sent(candidate, now)
        return keys, ticket

    def leave(self, rank: Rank, keys: Iterable[int], story: Story | None, *, answered: bool) -> None:
        """Take back what was predicted of a try that came to nothing."""
        if not answered:
            self._accounts.withdraw(rank, keys)
        if story is not None:
            story.over(answered=answered)
