from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.api.refusal import retry_after


@pytest.mark.parametrize(("value", "seconds"), [(b"7", 7.0), (b" 0 ", 0.0), (b"999999999", 999999999.0)])
def test_seconds_are_read_as_they_are(value: bytes, seconds: float) -> None:
    assert retry_after([(b"server", b"x"), (b"retry-after", value)]) == seconds


@pytest.mark.parametrize("usegmt", [True, False])
def test_a_date_is_read_as_the_time_until_then(usegmt: bool) -> None:
    until = datetime.now(UTC) + timedelta(seconds=30)
    found = retry_after([(b"retry-after", format_datetime(until, usegmt=usegmt).encode())])
    assert found is not None
    assert 25 < found <= 30
    past = format_datetime(until - timedelta(days=1), usegmt=usegmt).encode()
    assert retry_after([(b"retry-after", past)]) == 0.0


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"soon",
        b"-1",
        b"1.5",
        b"1e9",
        b"9999999999",
        b"\xff",
        b"Mon, 01 Jan 2020 00:00:00 +99999999999999",
    ],
)
def test_anything_else_says_nothing(value: bytes) -> None:
    assert retry_after([(b"retry-after", value)]) is None
    assert retry_after([]) is None


@given(st.binary(max_size=60))
def test_no_worker_can_break_it(value: bytes) -> None:
    found = retry_after([(b"retry-after", value)])
    assert found is None or found >= 0
