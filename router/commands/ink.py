"""Text for a terminal, or for whatever reads the output: colours where wanted, and columns."""

from __future__ import annotations

import os
import sys
from unicodedata import combining, east_asian_width

import msgspec

from router.errors import CommandFailed
from router.printable import printable_json

_CODES = {"bold": "1", "quiet": "2", "good": "32", "wait": "33", "bad": "31", "held": "34", "next": "36"}
_ROUND = 10
STATES = {
    "ready": "good",
    "live": "good",
    "paused": "wait",
    "draining": "wait",
    "degraded": "wait",
    "replaying": "wait",
    "failed": "bad",
    "starting": "quiet",
    "connecting": "quiet",
    "silent": "quiet",
}


class Ink:
    """Colours, as far as standard output is a terminal and NO_COLOR (no-color.org) is not set."""

    __slots__ = ("on", "terminal")

    def __init__(self) -> None:
        self.terminal = sys.stdout.isatty()
        self.on = self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, kind: str, text: str) -> str:
        """Return a text in one of the colours."""
        code = _CODES.get(kind)
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and code and text else text


def say(text: str) -> None:
    """Write lines at once; what the terminal has no characters for becomes a question mark.

    Raises CommandFailed when there is no room for them; a reader that has gone is click's affair.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries again as it ends
        raise CommandFailed(f"the output cannot be written: {error.strerror}") from None


def say_json(body: bytes) -> None:
    """Write JSON as `say` does, in lines for people."""
    say(printable_json(msgspec.json.format(body, indent=2).decode()))


def width(text: str) -> int:
    """Return how many columns a text without colours takes."""
    return sum(2 if east_asian_width(one) in "WF" else 0 if combining(one) else 1 for one in text)


def cut(text: str, columns: int) -> str:
    """Return as much of a text without colours as fits."""
    if width(text) <= columns:
        return text
    kept = ""
    for one in text:
        if width(kept + one) > columns - 1:
            break
        kept += one
    return kept + "~" if columns > 0 else ""


def short(number: float) -> str:
    """Return a number in at most five characters, as K, M or G."""
    size = abs(number)
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if size >= limit:
            return f"{number / limit:.3g}{unit}" if size < 1000 * limit else f"{number / limit:.0f}{unit}"
    return f"{number:.1f}" if number % 1 and size < _ROUND else f"{number:.0f}"


def span(seconds: float) -> str:
    """Return a time that has passed, in its largest unit of which there are two."""
    for unit, letter in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {letter}"
    return f"{short(max(0.0, seconds))} s"


def share(part: float, whole: float) -> str:
    """Return a share in percent, a dash of nothing."""
    return f"{min(1.0, part / whole):.1%}" if whole else "-"


def plural(count: int, one: str) -> str:
    """Return a count with its noun."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"
