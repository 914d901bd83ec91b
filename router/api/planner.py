"""From a request's body to what routing needs: where it may go, and its prompt as blocks.

The one path that a completion and an /explain share up to the decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from router.core.blocks import PromptBlocks
from router.prompts.forward import with_input_ids
from router.prompts.inexact import Inexact
from router.prompts.large import LARGE_BYTES, parse_large
from router.prompts.namespace import namespace
from router.prompts.prompt import BYTES_PER_TOKEN, Prompt
from router.prompts.remembered import Reading, Remembered
from router.prompts.request import Kind, Request, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core.wish import Wish
    from router.fleet.fleet import Fleet
    from router.fleet.route import Route
    from router.fleet.worker import Worker
    from router.observe.metrics import Metrics
    from router.prompts.reader import PromptReader
    from router.prompts.store import TokenizerStore
    from router.prompts.tokenizer import ChatTokenizer


_DISTRUSTED = "the engine counts other tokens than the router"
_UNREAD = "there is no tokenizer, and the policy looks at load alone; the count is estimated"


@dataclass(slots=True)
class Plan:
    """One request, ready for a decision.

    `exact`: the token count is the engine's own; `why` says what it is worth when it is not. `body` is what
    to send, `wish` how the client would have it routed.
    """

    request: Request
    route: Route
    prompt: PromptBlocks
    exact: bool
    why: str
    body: bytes
    wish: Wish


class Planner:
    """Plans requests for one fleet.

    Without a tokenizer, a worker is asked for a text's ids, or texts are compared; that is not worth it for a
    policy that looks at load alone. `forward_input_ids`: send SGLang token ids instead of text.
    """

    def __init__(
        self,
        fleet: Fleet,
        reader: PromptReader,
        tokenizers: TokenizerStore,
        metrics: Metrics,
        *,
        forward_input_ids: bool = False,
    ) -> None:
        self._fleet = fleet
        self._reader = reader
        self._tokenizers = tokenizers
        self._forward_input_ids = forward_input_ids
        self._remembered = Remembered()
        self._parse = metrics.stages["parse"].observe
        self._tokenize = metrics.stages["tokenize"].observe

    async def plan(
        self, kind: Kind, body: bytes, wish: Wish, check: Callable[[str], None] | None = None
    ) -> Plan:
        """Return the plan. Raises BadRequest, UnknownModel, NoWorker. Awaits only for long prompts.

        `check`, given the model, may raise before the prompt is read.
        """
        began = perf_counter()
        seen = self._remembered.get(kind, body)
        if seen is not None:
            request = seen.request
        else:
            request = parse(kind, body) if len(body) < LARGE_BYTES else await parse_large(kind, body)
        parsed = perf_counter()
        self._parse(parsed - began)
        route = self._fleet.route(request.model)
        if check is not None:
            check(route.model)
        if seen is not None and self._holds(seen, route):
            return self._planned(seen, route, body, wish)
        guesses = wish.policy.uses_prompt
        if not (guesses or isinstance(request.prompt, bytes) or self._tokenizer(route)):
            return _unread(request, route, body, wish)
        read = await self._read(request, route, body)
        self._tokenize(perf_counter() - parsed)
        return self._planned(read, route, body, wish)

    def _holds(self, seen: Reading, route: Route) -> bool:
        """Whether a body would be read now as it was."""
        return seen.holds(route, self._tokenizer(route)) and seen.trusted is self._trusts(seen.prompt, route)

    async def _read(self, request: Request, route: Route, body: bytes) -> Reading:
        tokenizer = self._tokenizer(route)
        prompt = await self._prompt(request, route, tokenizer)
        trusted = self._trusts(prompt, route)
        blocks = _blocks(request, route, prompt, trusted=trusted)
        read = Reading(request, (route.model, route.lora, route.engine), tokenizer, trusted, prompt, blocks)
        if prompt.source == "tokens" and (tokenizer is None or tokenizer.timeless):
            self._remembered.add(body, read)
        return read

    def _planned(self, read: Reading, route: Route, body: bytes, wish: Wish) -> Plan:
        prompt = read.prompt
        if self._forward_input_ids and self._proven(route):
            body = with_input_ids(read.request, prompt, body)
        why = prompt.why if read.trusted or not prompt.exact else _DISTRUSTED
        return Plan(read.request, route, read.blocks, prompt.exact, why, body, wish)

    def learn(self, plan: Plan, prompt_tokens: int) -> None:
        """Hold the engine's own count of a prompt's tokens against ours, which was exact."""
        if not (plan.request.kind is Kind.GENERATE and plan.request.rest):  # it has several answers
            route = plan.route
            self._tokenizers.check.counted(route.model, route.engine, plan.prompt.count, prompt_tokens)

    def _tokenizer(self, route: Route) -> ChatTokenizer | None:
        return self._tokenizers.get(route.model, route.engine)

    def _trusts(self, prompt: Prompt, route: Route) -> bool:
        """Whether a prompt's blocks are worth comparing."""
        return prompt.source != "tokens" or self._tokenizers.check.trusts(route.model, route.engine)

    def _proven(self, route: Route) -> bool:
        return route.engine == "sglang" and self._tokenizers.check.proven(route.model, route.engine)

    async def _prompt(self, request: Request, route: Route, tokenizer: ChatTokenizer | None) -> Prompt:
        prompt = self._reader.read_now(request, tokenizer, route.engine)
        if prompt is None:
            prompt = await self._reader.read_later(request, tokenizer, route.engine)
        if tokenizer is None and prompt.source == "text" and (spokesman := route.spokesman):
            return await self._asked(request, route, self._fleet.worker_of(spokesman), prompt)
        return prompt

    async def _asked(self, request: Request, route: Route, worker: Worker, guess: Prompt) -> Prompt:
        """Return the prompt as a worker tokenises it, or the guess when it does not in time."""
        try:
            key = route.model, route.engine
            return await self._tokenizers.remote.prompt(key, worker.url, worker.upstream, request)
        except Inexact:
            return guess


def _blocks(request: Request, route: Route, prompt: Prompt, *, trusted: bool) -> PromptBlocks:
    text = prompt.source == "text"
    return PromptBlocks(
        prompt.tokens if trusted else b"",
        prompt.count,
        namespace(request, route.engine, model=route.model, adapter=route.lora, text=text),
        reads_cache=request.reads_cache(route.engine),
        reusable=prompt.reusable,
    )


def _unread(request: Request, route: Route, body: bytes, wish: Wish) -> Plan:
    """Plan with no more than a size, where nothing is gained by reading the text."""
    count = max(1, request.size // BYTES_PER_TOKEN)
    space = namespace(request, route.engine, model=route.model, adapter=route.lora)
    blocks = PromptBlocks(b"", count, space, reusable=0)
    return Plan(request, route, blocks, exact=False, why=_UNREAD, body=body, wish=wish)
