"""`python -m tests.reference`: write anew what is made from the code: tables of pages, whole files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from router.observe.table import metric_table
from router.schema import schema_text
from tests.deploy.values import VALUES_SCHEMA, values_schema_text
from tests.monitoring.grafana import dashboard
from tests.monitoring.page import alert_table
from tests.options import option_tables

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
PAGES: dict[Path, dict[str, Callable[[], str]]] = {
    ROOT / "docs" / "options.md": {"options": option_tables},
    ROOT / "docs" / "metrics.md": {"metrics": metric_table},
    ROOT / "docs" / "alerts.md": {"alerts": alert_table},
}
SCHEMA = ROOT / "docs" / "config.schema.json"
FILES: dict[Path, Callable[[], str]] = {
    SCHEMA: schema_text,
    VALUES_SCHEMA: values_schema_text,
    ROOT / "deploy" / "grafana" / "kv-router.json": dashboard,
}


def held(marker: str, text: str) -> str | None:
    """Return what stands between a pair of markers."""
    found = re.search(rf"<!-- {marker} -->\n(.*?)\n?<!-- /{marker} -->", text, re.DOTALL)
    return found[1] if found else None


def rewritten(text: str, tables: dict[str, Callable[[], str]]) -> str:
    """Return a page with every table as the code has it now."""
    for marker, table in tables.items():
        start, end = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
        before, _, rest = text.partition(start)
        text = before + start + table() + "\n" + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    for page, tables in PAGES.items():
        page.write_text(rewritten(page.read_text(), tables))
    for file, make in FILES.items():
        file.write_text(make())
