"""Bodies that came before, with what was read of them, so that a prompt sent many times is read twice.

Samples of one prompt in RL and evaluation are requests with equal bodies, as are those that a client sends
again. A body is kept when it comes for the second time. What was read holds as long as the model's tokenizer
is the same and its templates do not ask for the time; whether it still does is looked at each time.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from router.core.blocks import PromptBlocks
    from router.fleet.route import Route
    from router.prompts.prompt import Prompt
    from router.prompts.request import Kind, Request
    from router.prompts.tokenizer import ChatTokenizer

MAX_BODY_BYTES = 65_536
"""Longer bodies are not kept."""

MAX_BYTES = 16 * 1024 * 1024
"""What all kept bodies may hold together; what was read of them is about as much again."""


MAX_MARKS = 8192
"""Of so many of the latest bodies it is known that they came: most come once, and are not worth keeping."""

# One in so many is given up at a time, and one more.
_SHARE = 64


class Reading(NamedTuple):
    """What was read of a body: for which route and by which tokenizer, and whether its ids were trusted."""

    request: Request
    route: tuple[str, str | None, str]
    tokenizer: ChatTokenizer | None
    trusted: bool
    prompt: Prompt
    blocks: PromptBlocks

    def holds(self, route: Route, tokenizer: ChatTokenizer | None) -> bool:
        """Whether the body would be read the same way again."""
        return self.tokenizer is tokenizer and self.route == (route.model, route.lora, route.engine)


class Remembered:
    """The latest bodies, the one that was asked for longest ago leaves first."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._readings: dict[bytes, Reading] = {}
        self._once: dict[int, None] = {}
        self._bytes = 0
        self._most = most

    def __len__(self) -> int:
        return len(self._readings)

    def get(self, kind: Kind, body: bytes) -> Reading | None:
        """Return what was read of a body. 1 us for one of 1 KB, 10 us for the longest."""
        reading = self._readings.pop(body, None)
        if reading is None:
            return None
        self._readings[body] = reading
        return reading if reading.request.kind is kind else None

    def add(self, body: bytes, reading: Reading) -> None:
        """Keep a reading when its body, which must not be too long, comes a second time."""
        size = len(body)
        if size > MAX_BODY_BYTES or not self._comes_again(hash(body)):
            return
        if self._readings.pop(body, None) is None:
            self._bytes += size
        self._readings[body] = reading
        while self._bytes > self._most:
            self._give_up(1 + len(self._readings) // _SHARE)

    def _comes_again(self, mark: int) -> bool:
        """Note a body's hash; say whether it had been noted."""
        if mark in self._once:
            return True
        if len(self._once) >= MAX_MARKS:
            self._once = dict.fromkeys(islice(self._once, MAX_MARKS // 2, None))
        self._once[mark] = None
        return False

    def _give_up(self, count: int) -> None:
        # Several at once: a dict whose first entries are gone takes long to find the first that is not.
        for oldest in list(islice(self._readings, count)):
            del self._readings[oldest]
            self._bytes -= len(oldest)
