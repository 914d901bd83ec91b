"""From a request's body to what routing needs: where it may go, and its prompt as blocks.

The one path that a completion and an /explain share up to the decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from router.core.blocks import PromptBlocks
from router.prompts.namespace import namespace
from router.prompts.request import Kind, Request, parse

if TYPE_CHECKING:
    from router.fleet.fleet import Fleet, Route
    from router.observe.metrics import Metrics
    from router.prompts.prompt import Prompt
    from router.prompts.reader import PromptReader
    from router.prompts.store import TokenizerStore


@dataclass(slots=True)
class Plan:
    """One request, ready for a decision. `why` says what the token count is worth when it is not exact."""

    request: Request
    route: Route
    prompt: PromptBlocks
    why: str


class Planner:
    """Plans requests for one fleet."""

    def __init__(
        self, fleet: Fleet, reader: PromptReader, tokenizers: TokenizerStore, metrics: Metrics
    ) -> None:
        self._fleet = fleet
        self._reader = reader
        self._tokenizers = tokenizers
        self._parse = metrics.stages["parse"].observe
        self._tokenize = metrics.stages["tokenize"].observe

    async def plan(self, kind: Kind, body: bytes) -> Plan:
        """Return the plan. Raises BadRequest, UnknownModel, NoWorker. Awaits only for long prompts."""
        began = perf_counter()
        request = parse(kind, body)
        parsed = perf_counter()
        self._parse(parsed - began)
        route = self._fleet.route(request.model)
        tokenizer = self._tokenizers.get(route.model, route.engine)
        prompt = self._reader.read_now(request, tokenizer)
        if prompt is None:
            prompt = await self._reader.read(request, tokenizer)
        self._tokenize(perf_counter() - parsed)
        return Plan(request, route, _blocks(request, route, prompt), prompt.why)


def _blocks(request: Request, route: Route, prompt: Prompt) -> PromptBlocks:
    return PromptBlocks(
        prompt.tokens,
        prompt.count,
        namespace(request, route.engine, model=route.model, adapter=route.lora),
        reads_cache=request.reads_cache(route.engine),
    )
