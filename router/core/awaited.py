"""What must come before batches count again, after a view was emptied from outside the stream."""

from __future__ import annotations

# Batches that can be on their way while a control call is answered; an engine that has published so many
# more without the expected AllBlocksCleared will not publish it.
_MOST_ON_THEIR_WAY = 64


class Awaited:
    """`word`: the first batch tells whether the engine's cache was emptied, too.

    `clear`: the engine's own AllBlocksCleared will come; batches before it are older than the emptying.
    """

    __slots__ = ("_left", "word")

    def __init__(self) -> None:
        self.word = False
        self._left = 0

    @property
    def anything(self) -> bool:
        """Whether the next batch is not just to be applied."""
        return self.word or self._left > 0

    def begin(self, *, clear: bool, word: bool) -> None:
        """The view has been emptied."""
        self._left = _MOST_ON_THEIR_WAY if clear else 0
        self.word = word

    def nothing(self) -> None:
        """The clear is here, or the process is another one."""
        self._left, self.word = 0, False

    def clear_is_lost(self) -> None:
        """It may be among batches that nobody has any more."""
        self._left = 0

    def skips(self, *, replayed: bool) -> bool:
        """Say whether a batch without a clear is older than the emptying; of a replay any number can be."""
        skips = self._left > 0
        self._left -= skips and not replayed
        return skips
