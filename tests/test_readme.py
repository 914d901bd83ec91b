"""What pages and files have from the code is what the code says; `python -m tests.reference` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.reference import FILES, PAGES, held

if TYPE_CHECKING:
    from pathlib import Path

_TABLES = [(page, marker) for page, tables in PAGES.items() for marker in tables]


@pytest.mark.parametrize(("page", "marker"), _TABLES, ids=[marker for _, marker in _TABLES])
def test_a_page_holds_the_reference_made_from_the_code(page: Path, marker: str) -> None:
    assert held(marker, page.read_text()) == PAGES[page][marker](), "run python -m tests.reference"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_is_what_its_maker_makes(file: Path) -> None:
    assert file.read_text() == FILES[file](), "run python -m tests.reference"
