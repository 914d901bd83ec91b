"""What is left of a URL when a message shows it."""

from __future__ import annotations

import pytest

from router.discreet import discreet
from router.errors import ConfigError
from router.fleet.discovery.kubernetes.settings import api_of
from router.proxy.origin import parse_origin


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://host:1", "http://host:1"),
        ("http://user:word@host:1/a", "http://***@host:1/a"),
        ("http://word@host", "http://***@host"),
        ("rediss://:word@host", "rediss://***@host"),
        ("http://user:a@b/c@host", "http://***@host"),
        ("http:/user:word@host", "***@host"),
        ("user:word@host", "***@host"),
        ("http://user:wo\nrd@host", "http://***@host"),
    ],
)
def test_what_stands_before_the_host_is_left_out(text: str, shown: str) -> None:
    assert discreet(text) == shown


def test_a_url_that_is_refused_is_shown_without_its_user() -> None:
    url = "http://user:" + 100 * "word" + "@host"
    with pytest.raises(ConfigError) as refused:
        parse_origin(url)
    assert "'http://***@host'" in refused.value.message
    with pytest.raises(ConfigError) as refused:
        api_of(url, None, None, {})
    assert "'http://***@host'" in refused.value.message
