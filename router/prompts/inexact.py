"""The ways in which this room gives up."""

from __future__ import annotations


class Inexact(Exception):
    """The token ids cannot be known here; the message is the reason, fit to be shown.

    An outcome that the reader turns into `exact=False`, not an error.
    """


class TooSlow(Inexact):
    """What was tried takes longer than it was given; with more time it might succeed."""
