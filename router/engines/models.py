"""`GET /v1/models`: the names a worker serves. Both engines answer in the same shape.

Facts (vLLM 0.32, SGLang 0.5.23): a card whose `parent` is null names the model itself, the first of them its
main name; a LoRA adapter's card has the base model's name as its parent. `root` of the model's card is the
path or hub name it was loaded from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from router.engines.answer import text


@dataclass(frozen=True, slots=True)
class Models:
    """The names of one worker, in its order; `root` is where the model was loaded from."""

    names: tuple[str, ...] = ()
    adapters: dict[str, str] = field(default_factory=dict)
    root: str | None = None


def read_models(answer: dict[str, Any] | None) -> Models:
    """Read the cards of an answer; what is not a card is passed over."""
    names: dict[str, str | None] = {}
    adapters: dict[str, str] = {}
    for card in _cards(answer):
        name, parent = text(card.get("id")), text(card.get("parent"))
        if name and parent and parent != name:
            adapters[name] = parent
        elif name:
            names.setdefault(name, text(card.get("root")))
    root = next(iter(names.values()), None)
    return Models(names=tuple(names), adapters=adapters, root=root)


def _cards(answer: dict[str, Any] | None) -> list[dict[str, Any]]:
    data = (answer or {}).get("data")
    return [card for card in data if isinstance(card, dict)] if isinstance(data, list) else []
