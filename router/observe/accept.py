"""Which of the two text formats a scraper wants, by its Accept header (RFC 9110, 12.5.1)."""

from __future__ import annotations

_OPENMETRICS = "application/openmetrics-text"
_VERSIONS = ("", "0.0.1", "1.0.0")
_TEXT = ("text/plain", "text/*", "*/*")


def wants_openmetrics(accept: str) -> bool:
    """Say whether OpenMetrics is wanted at least as much as anything else that we have. Never raises."""
    openmetrics = text = 0.0
    for part in accept.split(","):
        kind, _, rest = part.partition(";")
        kind = kind.strip().lower()
        parameters = dict(_parameter(each) for each in rest.split(";"))
        weight = _weight(parameters.get("q", "1"))
        if kind == _OPENMETRICS and parameters.get("version", "") in _VERSIONS:
            openmetrics = max(openmetrics, weight)
        elif kind in _TEXT:
            text = max(text, weight)
    return 0 < openmetrics >= text


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().lower(), value.strip().strip('"')


def _weight(text: str) -> float:
    try:
        return min(1.0, float(text))
    except ValueError:
        return 0.0
