from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.observe.accept import wants_openmetrics

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


@pytest.mark.parametrize("accept", [PROMETHEUS_2, PROMETHEUS_3, "application/openmetrics-text"])
def test_prometheus_gets_openmetrics_as_it_prefers(accept: str) -> None:
    assert wants_openmetrics(accept)


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/plain",
        "text/html,application/xhtml+xml,*/*;q=0.8",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;version=2.0.0",
        "application/openmetrics-text;q=0.3,text/plain;q=0.9",
        "application/openmetrics-text;q=x",
    ],
)
def test_everybody_else_gets_text(accept: str) -> None:
    assert not wants_openmetrics(accept)


@given(st.text())
def test_no_header_makes_it_fail(accept: str) -> None:
    wants_openmetrics(accept)
    wants_openmetrics("application/openmetrics-text;" + accept)
