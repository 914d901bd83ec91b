"""What a check has found, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from router.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.commands.ink import Ink

Level = Literal["ok", "note", "wrong"]
_MARKS: dict[Level, tuple[str, str]] = {
    "ok": ("ok", "good"),
    "note": ("note", "wait"),
    "wrong": ("WRONG", "bad"),
}


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at, of one `subject`: a URL, a rank of it.

    `note`: it works, and could be better or was not looked at. What is not ok has a `cure`.
    """

    subject: str
    check: str
    level: Level
    said: str
    cure: str = ""


class Chart:
    """Findings of one subject, as they are made."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.findings: list[Finding] = []

    def well(self, check: str, said: str) -> None:
        """Enter what is as it should be."""
        self.findings.append(Finding(self.subject, check, "ok", said))

    def note(self, check: str, said: str, cure: str) -> None:
        """Enter what works all the same."""
        self.findings.append(Finding(self.subject, check, "note", said, cure))

    def wrong(self, check: str, said: str, cure: str) -> None:
        """Enter what must be cured."""
        self.findings.append(Finding(self.subject, check, "wrong", said, cure))


def report(findings: Iterable[Finding], ink: Ink) -> list[str]:
    """Return the findings as lines, by subject."""
    lines: list[str] = []
    subject = None
    for one in findings:
        if one.subject != subject:
            subject = one.subject
            lines += [""] * bool(lines) + [ink("bold", printable(subject))]
        mark, kind = _MARKS[one.level]
        lines.append(f"  {ink(kind, f'{mark:<6}')}{one.check:<16} {printable(one.said)}")
        if one.cure:
            lines.append(f"  {'':<6}{'':<16} {ink('bold', 'cure:')} {printable(one.cure)}")
    return lines
