"""The tokenizers of the fleet's models, loaded once each and off the event loop."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.errors import ConfigError
from router.prompts.tokenizer import ChatTokenizer, load_tokenizer

if TYPE_CHECKING:
    from router.engines.description import Description

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """What there is for one model on one engine; without a tokenizer, `why` says why."""

    tokenizer: ChatTokenizer | None
    why: str


_UNASKED = Known(None, "no worker has named a tokenizer yet")


class TokenizerStore:
    """Each model's tokenizer: `default` where the operator gives one, else from the path its worker names."""

    def __init__(self, default: str | None) -> None:
        """`default` is the path that the operator gives, checked here: raises ConfigError. Blocks."""
        self._default = default
        if default is not None:
            load_tokenizer(default)
        self._known: dict[tuple[str, str], Known] = {}
        self._loading = asyncio.Lock()

    def get(self, model: str, engine: str) -> ChatTokenizer | None:
        """Return a model's tokenizer, if there is one. One lookup."""
        return self._known.get((model, engine), _UNASKED).tokenizer

    def why(self, model: str, engine: str) -> str:
        """Say why a model has no tokenizer, or a slow one; "" when all is well."""
        return self._known.get((model, engine), _UNASKED).why

    async def prepare(self, said: Description) -> None:
        """Load the tokenizer of a worker's model, unless it is there already: 1 to 2 s in a thread."""
        key = said.model, said.engine
        async with self._loading:
            known = self._known.get(key)
            if known is not None and known.tokenizer is not None:
                return
            loaded = await asyncio.to_thread(self._load, said)
            self._known[key] = loaded
            if loaded != known and loaded.why:
                _log.info("model %s on %s: %s", said.model, said.engine, loaded.why)

    def _load(self, said: Description) -> Known:
        paths = [path for path in (self._default, said.tokenizer_path) if path]
        whys = []
        for path in paths:
            try:
                tokenizer = load_tokenizer(path, engine=said.engine)
            except ConfigError as error:
                whys.append(error.message)
            else:
                return Known(tokenizer, tokenizer.why)
        return Known(None, "; ".join(["no tokenizer, text is routed by load only", *whys]))
