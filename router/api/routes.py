"""Which routes are the engines' and answered by one of them, and which of those carry a prompt."""

from __future__ import annotations

import re

from router.errors import NoRoute, NotHere, RouterError, WrongMethod
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
# They are for the worker that has the response, whichever that is.
_CANCEL = re.compile(r"/v1/responses/[^/]+/cancel")
_STORED = re.compile(r"/v1/responses/([^/]+)(?:/cancel|/input_items)?")
# Nothing that somebody behind us could read as another path: no dots or slashes to leave out, no parameters.
_PLAIN = re.compile(r"/v1(?:/(?!\.{1,2}(?:/|$))[\w.~:@-]+)+", re.ASCII)


def is_other(path: str) -> bool:
    """Whether a decoded path that is not in ROUTED is one of the engines' further routes under /v1."""
    if path in _CHANGES or _CANCEL.fullmatch(path) is not None:
        return False
    return _PLAIN.fullmatch(path) is not None


def kind_of(method: bytes, path: str) -> Kind | None:
    """Return what a request asks of an engine, whichever; None for what must reach none of many by chance."""
    if method != b"POST":
        return None
    kind = ROUTED.get(path)
    return Kind.OTHER if kind is None and is_other(path) else kind


def not_routed(method: str, path: str) -> RouterError:
    """Return what to say of a request that `kind_of` has no kind for."""
    if path in ROUTED and method != "POST":
        return WrongMethod(f"{path} takes POST, not {method:.20}", allow="POST")
    stored = _STORED.fullmatch(path)
    return not_here(stored[1]) if stored else NoRoute(f"{method:.20} {path:.200}: Not Found")


def not_here(response: str) -> NotHere:
    """Return what to say to who asks for a response that one of the workers has stored."""
    return NotHere(
        f"the router does not know which worker has the response {response:.100}: "
        "ask the one that its x-kv-router-worker named"
    )
