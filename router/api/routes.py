"""Which routes are the engines' and answered by one of them, and which of those carry a prompt."""

from __future__ import annotations

import re

from router.prompts.request import Kind

_BY_LOAD = (
    "/classify",
    "/detokenize",
    "/encode",
    "/inference/v1/generate",
    "/pooling",
    "/rerank",
    "/score",
    "/tokenize",
    "/v2/embed",
    "/v2/rerank",
)
# Every one by name; those under /v1 that are not among them go by load, too.
ROUTED = {kind.value: kind for kind in Kind if kind is not Kind.OTHER} | dict.fromkeys(_BY_LOAD, Kind.OTHER)

# They change an engine (weights, adapters) and must never reach one worker of many by chance.
_CHANGES = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter"})
# It is for the worker that has the response, whichever that is.
_CANCEL = re.compile(r"/v1/responses/[^/]+/cancel")
# Nothing that somebody behind us could read as another path: no dots or slashes to leave out, no parameters.
_PLAIN = re.compile(r"/v1(?:/(?!\.{1,2}(?:/|$))[\w.~:@-]+)+", re.ASCII)


def is_other(path: str) -> bool:
    """Whether a decoded path that is not in ROUTED is one of the engines' further routes under /v1."""
    if path in _CHANGES or _CANCEL.fullmatch(path) is not None:
        return False
    return _PLAIN.fullmatch(path) is not None
