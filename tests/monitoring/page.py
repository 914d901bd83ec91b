"""The tables of docs/alerts.md and docs/metrics.md."""

from __future__ import annotations

from tests.monitoring.known import rules


def alert_table() -> str:
    """Return all alerts as a Markdown table."""
    lines = ["| Alert | Severity | After | When |", "| --- | --- | --- | --- |"]
    for rule in rules("alerts"):
        name, condition = rule["alert"], " ".join(rule["expr"].split()).replace("|", "\\|")
        after = rule.get("for", "at once")
        lines.append(
            f"| [{name}](#{name.lower()}) | {rule['labels']['severity']} | {after} | `{condition}` |"
        )
    return "\n".join(lines)
