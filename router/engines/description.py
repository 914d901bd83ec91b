"""What a worker is, as far as the router needs it: the same for every engine.

Rule of the room: plain frozen values, filled by `sglang` and `vllm` after the operator's own settings were
laid over what the worker said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.fleet.spec import EngineName, Role


@dataclass(frozen=True, slots=True)
class EventSource:
    """Where one rank's KV events come from.

    `endpoint` is the address to connect to or, with `bind`, to bind. `replay` is always connected to; None:
    no replay. `topic` is the subscription's prefix.
    """

    endpoint: str
    replay: str | None
    topic: str
    bind: bool


@dataclass(frozen=True, slots=True)
class Description:
    """What a worker says about itself, under the operator's settings.

    `model` is the name it serves, `aliases` are its other names, `adapters` LoRA names with their base model.
    `block_size` is in tokens, None: learn it from the events. `sources` has `dp` elements, one per rank; None
    in it: that rank has no events. `why_no_events` says why there are none or, where a source stands, the
    likely cause if nothing should ever arrive; "" when nothing speaks against events. `bigram`: events come
    with token pairs. `tokenizer_path` is a path or a hub name on the worker's side. `started` changes with
    the worker's process; None: it does not say. `bootstrap_port` is where decode workers ask a prefill worker
    for prompts (SGLang); None: that is not how this engine does it. `loads`: where ranks tell their load
    (SGLang), None or no element for those that do not.
    """

    engine: EngineName
    model: str
    aliases: tuple[str, ...]
    adapters: dict[str, str]
    block_size: int | None
    dp: int
    sources: tuple[EventSource | None, ...]
    why_no_events: str
    bigram: bool
    role: Role
    tokenizer_path: str | None
    started: str | None
    version: str | None
    bootstrap_port: int | None = None
    loads: tuple[EventSource | None, ...] = ()

    @property
    def shape(self) -> tuple[object, ...]:
        """What views are made for; while it stays, a view can be reset instead of replaced."""
        has_events = tuple(source is not None for source in self.sources)
        return (self.engine, self.model, self.block_size, self.bigram, self.dp, has_events)
