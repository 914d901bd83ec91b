"""The README's reference is what the code says; `python -m tests.reference` writes it."""

from __future__ import annotations

import pytest

from tests.reference import README, TABLES, held


@pytest.mark.parametrize("marker", sorted(TABLES))
def test_the_readme_holds_the_reference_made_from_the_code(marker: str) -> None:
    assert held(marker, README.read_text()) == TABLES[marker](), "run python -m tests.reference"
