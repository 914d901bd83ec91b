"""One request inside the engine: what was asked, how far it is, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.engine.radix import Node
    from workers.engine.sequence import Sequence


def _ignore() -> None:
    pass


@dataclass(slots=True, eq=False)
class Request:
    """A prompt to continue by `max_new` tokens; `ends_with` is the finish reason when that is reached.

    `notify` is called after a step that finished the request, and after every token when `eager`.
    """

    rid: str
    sequence: Sequence
    max_new: int
    ends_with: str = "length"
    eager: bool = False
    notify: Callable[[], None] = _ignore

    prompt_tokens: int = field(init=False)
    output: list[int] = field(default_factory=list)
    cached_tokens: int | None = None  # of the first admission: what usage reports
    finish: str | None = None
    aborted: bool = False
    draw: int | None = None  # the sampler's state

    computed: int = 0  # tokens whose KV exists
    shared: int = 0  # pages owned by the tree, locked through `node`
    private: int = 0  # pages owned by this request
    promised: int = 0  # pages it may still need
    node: Node | None = None

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.sequence)

    @property
    def uncached(self) -> int:
        """Tokens that a prefill has still to compute."""
        return len(self.sequence) - self.computed
