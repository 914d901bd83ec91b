"""What is left of a URL when a message shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.discreet import discreet
from router.errors import ConfigError
from router.fleet.discovery.kubernetes.settings import api_of
from router.layers import load
from router.proxy.origin import parse_origin

if TYPE_CHECKING:
    from pathlib import Path


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
        ("http://host:1?token=word", "http://host:1?***"),
        ("http://host:1/a#word", "http://host:1/a#***"),
        ("tcp://host:1?word", "tcp://host:1?***"),
        ("http://user:a?b#c@host?d@e", "http://***@e"),
        ("http://user:wo\nrd@host", "http://***@host"),
    ],
)
def test_what_stands_before_the_host_is_left_out(text: str, shown: str) -> None:
    assert discreet(text) == shown


@pytest.mark.parametrize(
    "given",
    [
        "workers: ['http://h:1?token=hunter2']",
        "workers: ['http://h:1#hunter2']",
        "workers: ['http://h:1,hunter2']",
        "workers: [{url: 'http://h:1', kv: 'tcp://h:1?hunter2'}]",
        "otlp: grpc://h/hunter2",
        "otlp: http://u:hunter2@h",
        "kubernetes_api: 'http://h:1/?t=hunter2'",
    ],
)
def test_what_can_be_a_secret_is_in_no_message_of_a_wrong_setting(tmp_path: Path, given: str) -> None:
    path = tmp_path / "router.yaml"
    path.write_text(f"{given}\n")
    with pytest.raises(ConfigError) as refused:
        load({"config": str(path)}, {})
    assert "hunter2" not in "".join(refused.value.lines)


def test_a_url_that_is_refused_is_shown_without_its_user() -> None:
    url = "http://user:" + 100 * "word" + "@host"
    with pytest.raises(ConfigError) as refused:
        parse_origin(url)
    assert "'http://***@host'" in refused.value.message
    with pytest.raises(ConfigError) as refused:
        api_of(url, None, None, {})
    assert "'http://***@host'" in refused.value.message
