"""The tokenizers of the fleet's models, loaded once each and off the event loop.

A model runs in one of these modes, which /workers and the metrics show with the reason:

- the name of the library that tokenises it here: token ids are exact;
- "worker": its worker's POST /tokenize is asked for every prompt: exact, but slower;
- "text": neither: prompts are compared as text with what was routed lately, and with nothing else;
- "distrusted": our counts are not the engine's: requests are routed by load only until they agree again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.errors import ConfigError
from router.prompts.check import SelfCheck
from router.prompts.hub import fetch_model, is_hub_name
from router.prompts.remote import DEADLINE_SECONDS, RemoteTokenizer
from router.prompts.tokenizer import ChatTokenizer, load_tokenizer

if TYPE_CHECKING:
    from router.engines.description import Description
    from router.proxy.upstream import Upstream

    Key = tuple[str, str]

FETCH_AGAIN_SECONDS = 300.0
"""How long after a failure the hub is asked again for the same model."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """What there is for one model on one engine; without a tokenizer, `why` says why."""

    tokenizer: ChatTokenizer | None
    why: str


_UNASKED = Known(None, "no worker has named a tokenizer yet")


class TokenizerStore:
    """Each model's tokenizer: `default` where the operator gives one, else from the path its worker names.

    Also the router's judgement of them (`check`), and what stands in for one that is not here (`remote`).
    """

    def __init__(self, default: str | None, *, deadline: float = DEADLINE_SECONDS) -> None:
        """`default` is the path or hub name that the operator gives; a path is checked here.

        Raises ConfigError. Blocks for a path; a hub name is fetched when a worker serves the first model.
        `deadline`: how long a request may wait for a worker's /tokenize, in seconds.
        """
        self._default = default
        if default is not None and not is_hub_name(default):
            load_tokenizer(default)
        self._known: dict[Key, Known] = {}
        self._loading = asyncio.Lock()
        self._fetching: dict[Key, asyncio.Task[None]] = {}
        self._fetched: dict[Key, float] = {}
        self._compared: dict[str, tuple[str, ...]] = {}
        self._checks: set[asyncio.Task[None]] = set()
        self.check = SelfCheck()
        self.remote = RemoteTokenizer(time.monotonic, deadline=deadline)

    def get(self, model: str, engine: str) -> ChatTokenizer | None:
        """Return a model's tokenizer, if there is one. One lookup."""
        return self._known.get((model, engine), _UNASKED).tokenizer

    def why(self, model: str, engine: str) -> str:
        """Say why a model has no tokenizer, or a slow one; "" when all is well."""
        return self._known.get((model, engine), _UNASKED).why

    def mode(self, model: str, engine: str) -> tuple[str, str]:
        """Return the mode that a model runs in, and why it is not the best; see the module."""
        distrusted = self.check.why(model, engine)
        if distrusted:
            return "distrusted", distrusted
        known = self._known.get((model, engine), _UNASKED)
        if known.tokenizer is not None:
            return known.tokenizer.encoder.name, known.why
        unanswered = self.remote.outcomes.get(
            (model, engine), "its workers have not been asked for tokens yet"
        )
        mode = "text" if unanswered else "worker"
        return mode, "; ".join(filter(None, (known.why, unanswered)))

    async def prepare(self, said: Description, upstream: Upstream | None = None) -> None:
        """Load the tokenizer of a worker's model, unless it is there already: 1 to 2 s in a thread.

        What has to be fetched from the hub is fetched in the background. With the worker's `upstream` the
        token ids are compared with its own, in the background too.
        """
        key = said.model, said.engine
        async with self._loading:
            known = self._known.get(key)
            if known is None or known.tokenizer is None:
                self._enter(key, await asyncio.to_thread(self._load, said))
                known = self._known[key]
        if known.tokenizer is None:
            self._fetch(key, said, upstream)
        elif upstream is not None:
            self._compare(key, known.tokenizer, upstream, said.started or "")

    async def compared(self, said: Description, upstream: Upstream) -> tuple[str | None, str]:
        """Do the same and wait for it; return the library's name, None without a tokenizer, and why."""
        await self.prepare(said, upstream)
        await asyncio.gather(*self._fetching.values())
        await asyncio.gather(*self._checks)
        tokenizer = self.get(said.model, said.engine)
        return tokenizer.encoder.name if tokenizer else None, self.why(said.model, said.engine)

    async def close(self) -> None:
        """Cancel what runs in the background."""
        tasks = [*self._fetching.values(), *self._checks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _enter(self, key: Key, loaded: Known) -> None:
        before, self._known[key] = self._known.get(key), loaded
        if loaded != before and loaded.why:
            _log.info("model %s on %s: %s", *key, loaded.why)

    def _paths(self, said: Description) -> list[str]:
        return [path for path in (self._default, said.tokenizer_path) if path]

    def _load(self, said: Description) -> Known:
        """Load from the first path that can be read here."""
        return _first(said, [path for path in self._paths(said) if not is_hub_name(path)])

    def _fetch(self, key: Key, said: Description, upstream: Upstream | None) -> None:
        """Ask the hub in the background, unless it is being asked or was lately."""
        names = [path for path in self._paths(said) if is_hub_name(path)]
        running = self._fetching.get(key)
        lately = time.monotonic() - self._fetched.get(key, float("-inf")) < FETCH_AGAIN_SECONDS
        if names and not lately and (running is None or running.done()):
            self._fetching[key] = asyncio.create_task(self._fetch_one(key, said, names, upstream))

    async def _fetch_one(
        self, key: Key, said: Description, names: list[str], upstream: Upstream | None
    ) -> None:
        loaded = await asyncio.to_thread(_fetched, said, names)
        self._fetched[key] = time.monotonic()
        self._enter(key, loaded)
        if upstream is not None and loaded.tokenizer is not None:
            self._compare(key, loaded.tokenizer, upstream, said.started or "")

    def _compare(self, key: Key, tokenizer: ChatTokenizer, upstream: Upstream, started: str) -> None:
        """Compare with a worker once in its life, or once for each of its models."""
        life = (*key, started)
        if self._compared.get(upstream.url) == life:
            return
        self._compared[upstream.url] = life
        task = asyncio.create_task(self.check.ask(upstream, tokenizer, *key))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)


def _fetched(said: Description, names: list[str]) -> Known:
    """Fetch and load the first of the models that the hub has. Blocks."""
    paths, whys = [], []
    for name in names:
        try:
            paths.append(fetch_model(name))
        except ConfigError as error:
            whys.append(error.message)
    loaded = _first(said, paths)
    return loaded if loaded.tokenizer is not None else Known(None, "; ".join([loaded.why, *whys]))


def _first(said: Description, paths: list[str]) -> Known:
    whys = []
    for path in paths:
        try:
            tokenizer = load_tokenizer(path, engine=said.engine)
        except ConfigError as error:
            whys.append(error.message)
        else:
            return Known(tokenizer, tokenizer.why)
    return Known(None, "; ".join(["no tokenizer here", *whys]))
