"""Bodies are edited by field: what is not ours parses to what it was."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import BadRequest
from router.pairs.body import copies, with_fields

OURS = {"bootstrap_host": b'"10.0.0.1"', "bootstrap_port": b"8998", "bootstrap_room": b"[1,2]"}
PARSED = {name: json.loads(value) for name, value in OURS.items()}
NAMES = ("max_tokens", "stream", "stream_options", "min_tokens", *OURS)

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts | st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(texts | st.sampled_from(NAMES), values, max_size=6)
styles = st.sampled_from([{}, {"indent": 2}, {"ensure_ascii": False}, {"separators": (",", ":")}])
spaces = st.text(" \t\r\n", max_size=3)


def encoded(body: dict[str, Any], style: dict[str, Any], space: str) -> bytes:
    return (space + json.dumps(body, **style) + space).encode()


@given(objects, styles, spaces)
def test_any_body_parses_to_the_same_plus_our_fields(
    body: dict[str, Any], style: dict[str, Any], space: str
) -> None:
    sent = with_fields(encoded(body, style, space), OURS)
    assert json.loads(sent) == body | PARSED
    assert len(msgspec.json.decode(sent, type=dict[str, msgspec.Raw])) == len(body | PARSED)


@given(objects, styles, spaces)
def test_fields_are_taken_out_and_changed_only_where_they_are(
    body: dict[str, Any], style: dict[str, Any], space: str
) -> None:
    sent = with_fields(
        encoded(body, style, space),
        {"max_tokens": b"1"},
        instead={"stream": b"false", "max_completion_tokens": b"1"},
        without=("stream_options", "min_tokens"),
    )
    expected = {name: value for name, value in body.items() if name not in {"stream_options", "min_tokens"}}
    expected |= {name: False for name in ("stream",) if name in body} | {"max_tokens": 1}
    assert json.loads(sent) == expected


def test_what_stays_keeps_its_bytes() -> None:
    kept = b'"a": 1.50e+02, "b" : "\\u00e9\\/", "n": 100000000000000000000000000000'
    sent = with_fields(b"{" + kept + b' , "bootstrap_room": 7}', OURS)
    assert b"1.50e+02" in sent
    assert b'"\\u00e9\\/"' in sent
    assert b"100000000000000000000000000000" in sent
    assert with_fields(b"{" + kept + b"}", {"x": b"1"}) == b"{" + kept + b',"x":1}'


def test_a_client_cannot_choose_the_room() -> None:
    """SGLang fails on a room that is in use: ours is the only one, whatever the client wrote and how."""
    plain = with_fields(b'{"bootstrap_room": 7, "bootstrap_room": 8, "bootstrap_host": "evil"}', OURS)
    assert plain.count(b"bootstrap_room") == 1
    assert json.loads(plain) == PARSED
    escaped = b'{"\\u0062ootstrap_room": 7, "prompt": "x"}'
    for sent in (with_fields(escaped, OURS), with_fields(b'{"bootstrap_host": 1, ' + escaped[1:], OURS)):
        assert json.loads(sent) == PARSED | {"prompt": "x"}
        assert msgspec.json.decode(sent) == PARSED | {"prompt": "x"}


def test_a_name_that_is_no_text_is_the_clients_fault() -> None:
    with pytest.raises(BadRequest, match="UTF-8"):
        with_fields(b'{"\xff": 1, "stream": true}', {"stream": b"false"})


@pytest.mark.parametrize(
    ("n", "count"),
    [
        ("3", 3),
        ("1", 1),
        ("0", 1),
        ("-4", 1),
        ("true", 1),
        ('"2"', 1),
        ("2.5", 1),
        ("null", 1),
        ('"\xff"', 1),
    ],
)
def test_copies_are_counted_where_they_can_be(n: str, count: int) -> None:
    assert copies(b'{"n": %s}' % n.encode("latin-1")) == count


def test_more_copies_than_any_engine_takes_are_refused() -> None:
    with pytest.raises(BadRequest, match="16384"):
        copies(b'{"n": 1000000000000}')
