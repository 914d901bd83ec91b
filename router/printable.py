"""Text from outside, so that it can steer no terminal, forge no line and turn no text around.

A name stays what it is inside the router; where it is written for people, or into the metrics, it passes
here.
"""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return the text with what cannot be printed escaped, such as \x1b."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def printable_json(text: str) -> str:
    r"""Return the same JSON with what cannot be printed escaped, such as \u001b; its line breaks stay."""
    return "\n".join(
        line if line.isprintable() else "".join(one if one.isprintable() else _unit(one) for one in line)
        for line in text.split("\n")
    )


def _unit(one: str) -> str:
    """Return a character as JSON escapes it, one beyond the first 65536 as two halves."""
    units = one.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
