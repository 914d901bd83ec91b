"""`python -m tests.reference`: write the README's tables, and the schemas of settings, anew from the code."""

from __future__ import annotations

import re
from pathlib import Path

from router.config import flag_table
from router.observe.table import metric_table
from router.schema import schema_text
from tests.deploy.values import VALUES_SCHEMA, values_schema_text

README = Path(__file__).parent.parent / "README.md"
SCHEMA = README.parent / "docs" / "config.schema.json"
TABLES = {"flags": flag_table, "metrics": metric_table}


def held(marker: str, text: str) -> str | None:
    """Return what stands between a pair of markers."""
    found = re.search(rf"<!-- {marker} -->\n(.*?)\n?<!-- /{marker} -->", text, re.DOTALL)
    return found[1] if found else None


def rewritten(text: str) -> str:
    """Return the README with every table as the code has it now."""
    for marker, table in TABLES.items():
        start, end = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
        before, _, rest = text.partition(start)
        text = before + start + table() + "\n" + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text()))
    SCHEMA.write_text(schema_text())
    VALUES_SCHEMA.write_text(values_schema_text())
