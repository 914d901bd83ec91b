from __future__ import annotations

import pytest

from router.errors import ConfigError
from router.proxy.origin import Origin, parse_origin


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://w", Origin("w", 80, secure=False, authority=b"w", prefix=b"")),
        ("https://w", Origin("w", 443, secure=True, authority=b"w", prefix=b"")),
        ("http://w:8000/", Origin("w", 8000, secure=False, authority=b"w:8000", prefix=b"")),
        ("http://w:8000/a/b/", Origin("w", 8000, secure=False, authority=b"w:8000", prefix=b"/a/b")),
        ("http://[::1]:8000", Origin("::1", 8000, secure=False, authority=b"[::1]:8000", prefix=b"")),
    ],
)
def test_a_url_is_taken_apart(url: str, origin: Origin) -> None:
    assert parse_origin(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "w:8000",
        "ftp://w",
        "http://",
        "http://w:99999",
        "http://w:port",
        "http://[::1",
        "http://w?a=b",
        "http://w#a",
        "http://user:secret@w",
        "http://w/a b",
        "http://wörker",
    ],
)
def test_what_no_request_can_go_to_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected http://host:port"):
        parse_origin(url)
