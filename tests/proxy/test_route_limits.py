from __future__ import annotations

import pytest

from router.errors import ConfigError
from router.proxy.limits import Limits
from router.proxy.route_limits import RouteLimits, parse_route_limits, route_limits_from_mapping


def test_limits_of_a_route_are_read_from_text_and_from_a_mapping() -> None:
    expected = RouteLimits("/v1/embeddings", first_byte=5.0, total=30.5)
    assert parse_route_limits("/v1/embeddings, first-byte=5, total = 30.5") == expected
    mapping: dict[object, object] = {"path": "/v1/embeddings", "first_byte": "5", "total": 30.5}
    assert route_limits_from_mapping(mapping) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "path: expected one that begins with /, got ''"),
        ("v1,total=1", "path: expected one that begins with /, got 'v1'"),
        ("/v1/x?a=b,total=1", "path: expected one that begins with /, got '/v1/x?a=b'"),
        ("/v1/x", "setting: expected at least one of connect, first-byte, idle, total"),
        ("/v1/x,", "setting: expected one of connect, first-byte, idle, total, each once, got ''"),
        ("/v1/x,totals=1", "setting: expected total, got 'totals'"),
        (
            "/v1/x,total=1,total=2",
            "setting: expected one of connect, first-byte, idle, total, each once, got 'total'",
        ),
        ("/v1/x,total=", "total: expected seconds up to 86400, got ''"),
        ("/v1/x,total=1s", "total: expected seconds up to 86400, got '1s'"),
        ("/v1/x,total=86401", "total: expected seconds up to 86400, got '86401'"),
        ("/v1/x,total=nan", "total: expected seconds up to 86400, got 'nan'"),
        ("/v1/x,connect=0", "connect: expected seconds up to 86400, not 0, got '0'"),
    ],
)
def test_what_is_wrong_is_one_line(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_route_limits(text)
    path = text.partition(",")[0]
    assert caught.value.message == f"limits of route {path!r}: {expected}"


def test_a_mapping_needs_a_path() -> None:
    with pytest.raises(ConfigError, match="path: expected"):
        route_limits_from_mapping({"total": "1"})


def test_limits_of_a_route_are_laid_over_those_of_all() -> None:
    limits = Limits(first_byte_seconds=9, idle_seconds=8).with_routes(
        [RouteLimits("/v1/x", first_byte=1.0), RouteLimits("/v1/y", idle=0.0, total=5.0, connect=2.0)]
    )
    for target in (b"/v1/x", b"/v1/x?a=b", b"/v1/%78"):
        on = limits.on(target)
        assert (on.first_byte_seconds, on.idle_seconds, on.total_seconds) == (1, 8, 0)
    on = limits.on(b"/v1/y")
    assert (on.first_byte_seconds, on.idle_seconds, on.total_seconds, on.connect_seconds) == (9, 0, 5, 2)
    assert limits.on(b"/v1/z") is limits
    assert limits.on(b"/v1/x/y") is limits
