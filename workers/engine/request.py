"""One request inside the engine: what was asked, how far it is, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.engine.blocks import Block
    from workers.engine.node import Node
    from workers.engine.sequence import Sequence


def _ignore() -> None:
    pass


def _ignore_time(_moment: float) -> None:
    pass


@dataclass(slots=True, eq=False)
class Request:
    """A prompt to continue by `max_new` tokens; `ends_with` is the finish reason when that is reached.

    `notify` is called after a step that finished the request, and after every token when `eager`.
    `ignores_cache`: prompt logprobs need every prompt token computed. `reports_hits`: what it hits is
    announced once more (vLLM). `keeps_kv`: its blocks stay held when it has ended, for a decode worker to
    fetch (vLLM). `room` joins the two halves of a prefill/decode pair; `remote`: its prompt's
    KV comes from another worker, and `pull` is called when there is room for it. `sends` is called when its
    KV begins to travel to another worker, with the time it will be there.
    """

    rid: str
    sequence: Sequence
    max_new: int
    ends_with: str = "length"
    eager: bool = False
    notify: Callable[[], None] = _ignore
    ignores_cache: bool = False
    reports_hits: bool = False
    session_id: str | None = None
    keeps_kv: bool = False
    room: int | None = None
    remote: bool = False
    pull: Callable[[], None] = _ignore
    sends: Callable[[float], None] = _ignore_time

    prompt_tokens: int = field(init=False)
    output: list[int] = field(default_factory=list)
    cached_tokens: int | None = None  # of the first admission: what usage reports
    finish: str | None = None
    error: str | None = None  # why it was aborted, if not by its client
    aborted: bool = False
    draw: int | None = None  # the sampler's state

    computed: int = 0  # tokens whose KV exists
    ready_at: float = 0.0  # when KV that is being loaded will be there
    shared: int = 0  # pages owned by the tree, locked through `node`; on vLLM: blocks that have a hash
    private: int = 0  # pages owned by this request
    promised: int = 0  # pages that its prompt still needs
    hoped: int = 0  # pages that its output may need
    node: Node | None = None
    blocks: list[Block] = field(default_factory=list)  # vLLM's

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.sequence)

    @property
    def uncached(self) -> int:
        """Tokens that a prefill has still to compute."""
        return len(self.sequence) - self.computed

    @property
    def left(self) -> int:
        """Tokens that it may still be answered with."""
        return self.max_new - len(self.output)

    @property
    def holds_kv(self) -> bool:
        """Whether it has been given memory."""
        return self.node is not None or bool(self.blocks)
