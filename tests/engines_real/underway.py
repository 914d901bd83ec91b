"""A request that is being answered: how far its answer has come, and how it ended."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.engines_real.asking import COMPLETION
from tests.engines_real.model import NAME
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import httpx2

# That many are answered before anything is done to the engine.
_BEGUN = 4
_BODY = {"model": NAME, "temperature": 0, "ignore_eos": True, "stream": True, "return_token_ids": True}


@dataclass(slots=True)
class UnderWay:
    """A streamed completion; `tokens` have come so far, `finish` says why there are no more."""

    prompt: list[int]
    wanted: int
    tokens: int = 0
    finish: str = ""

    async def run(self, client: httpx2.AsyncClient) -> None:
        """Send it and read its answer to the end."""
        body = _BODY | {"prompt": self.prompt, "max_tokens": self.wanted}
        async with client.stream("POST", COMPLETION, json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    self._take(json.loads(line.removeprefix("data: "))["choices"][0])

    def _take(self, choice: dict[str, object]) -> None:
        ids = choice["token_ids"] or []
        assert isinstance(ids, list)
        self.tokens += len(ids)
        self.finish = str(choice["finish_reason"] or self.finish)


@asynccontextmanager
async def under_way(
    client: httpx2.AsyncClient, prompts: Sequence[list[int]], wanted: int
) -> AsyncIterator[list[UnderWay]]:
    """Send the prompts, go on when all are being answered, and wait in the end until they have been."""
    ones = [UnderWay(prompt, wanted) for prompt in prompts]
    async with asyncio.TaskGroup() as group:
        for one in ones:
            group.create_task(one.run(client))
        await until(lambda: all(one.tokens >= _BEGUN for one in ones), "answers under way")
        yield ones
