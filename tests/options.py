"""The reference of all settings, for docs/options.md: a table for each section."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.config import CONFIG_FILE, OPTIONS, SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.setting import Option


def option_tables() -> str:
    """Return the sections as Markdown."""
    sections = {heading: [OPTIONS[name] for name in section] for heading, section in SECTIONS.items()}
    sections["The file"] = [CONFIG_FILE]
    return "\n\n".join(f"### {heading}\n\n{_table(options)}" for heading, options in sections.items())


def _table(options: Iterable[Option]) -> str:
    rows = [("Flag", "Variable", "Default", "Expected", "Meaning"), ("---",) * 5, *map(_row, options)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def _row(option: Option) -> tuple[str, str, str, str, str]:
    return (
        f"`{option.flag} {option.setting.kind.placeholder}`",
        f"`{option.variable}`",
        f"`{option.shown_default}`" if option.default is not None else "",
        option.limits,
        option.setting.help,
    )
