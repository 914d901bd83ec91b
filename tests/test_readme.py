from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from router.config import flag_table
from router.observe.table import metric_table

if TYPE_CHECKING:
    from collections.abc import Callable

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.parametrize(("marker", "table"), [("flags", flag_table), ("metrics", metric_table)])
def test_the_readme_holds_the_reference_made_from_the_code(marker: str, table: Callable[[], str]) -> None:
    held = re.search(rf"<!-- {marker} -->\n(.*?)\n<!-- /{marker} -->", README.read_text(), re.DOTALL)
    assert held, f"put this between <!-- {marker} --> and <!-- /{marker} -->:\n{table()}"
    assert held[1].strip() == table()
