from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import BadRequest
from router.proxy.headers import (
    answer_headers,
    ends_with_connection,
    laid_over,
    request_head,
)

TOKEN = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1).map(str.encode)
VALUE = st.binary(max_size=20)


def test_hop_by_hop_fields_of_an_answer_end_here() -> None:
    fields = [
        (b"connection", b"keep-alive"),
        (b"keep-alive", b"timeout=5"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"x-kept", b"1"),
    ]
    assert answer_headers(fields) == [(b"x-kept", b"1")]


def test_fields_of_an_answer_named_by_connection_end_here_too() -> None:
    fields = [(b"x-private", b"1"), (b"connection", b"close, X-Private"), (b"x-kept", b"1")]
    assert answer_headers(fields) == [(b"x-kept", b"1")]
    assert answer_headers([*fields, (b"connection", b"x-kept")]) == []


def test_an_answer_keeps_its_length_and_gets_what_the_caller_adds() -> None:
    fields = [(b"content-length", b"3"), (b"set-cookie", b"a"), (b"set-cookie", b"b")]
    assert answer_headers(fields, [(b"x-request-id", b"7")]) == [*fields, (b"x-request-id", b"7")]


def test_a_worker_cannot_speak_for_the_router() -> None:
    ours = [(b"x-kv-router-rank", b"1"), (b"x-request-id", b"7")]
    evil = [(b"x-kv-router-rank", b"2"), (b"x-kv-router-else", b"2"), (b"x-request-id", b"8")]
    assert answer_headers([(b"a", b"b"), *evil, (b"x-a", b"c")], ours) == [
        (b"a", b"b"),
        (b"x-a", b"c"),
        *ours,
    ]
    assert answer_headers(evil[:2]) == []


def test_a_pin_replaces_the_clients_own() -> None:
    pin = [(b"x-data-parallel-rank", b"1")]
    assert laid_over([(b"x-data-parallel-rank", b"7"), (b"a", b"b")], pin) == [(b"a", b"b"), *pin]


def test_a_request_head_is_written_with_host_and_length() -> None:
    head = request_head(b"POST", b"/v1?a=b", [b"host: w:80"], [(b"accept", b"*/*"), (b"x-a", b"b: c")], 12)
    assert head == (
        b"POST /v1?a=b HTTP/1.1\r\nhost: w:80\r\ncontent-length: 12\r\naccept: */*\r\nx-a: b: c\r\n\r\n"
    )


def test_only_a_request_that_can_have_content_says_that_it_has_none() -> None:
    assert request_head(b"GET", b"/", [b"host: w"], [], 0) == b"GET / HTTP/1.1\r\nhost: w\r\n\r\n"
    assert b"content-length: 0" in request_head(b"POST", b"/", [b"host: w"], [], 0)


@pytest.mark.parametrize("bad", [b"\r", b"\n", b"\r\n", b"\0", b"\r\nx: y", b"\n\n"])
def test_nothing_can_split_a_request(bad: bytes) -> None:
    for method, target, name, value in (
        (b"GET" + bad, b"/", b"a", b"b"),
        (b"GET", b"/" + bad, b"a", b"b"),
        (b"GET", b"/", b"a" + bad, b"b"),
        (b"GET", b"/", b"a", b"b" + bad + b"c"),
        (b"GET", b"/", b"a", bad),
    ):
        with pytest.raises(BadRequest):
            request_head(method, target, [b"host: w"], [(name, value)], 0)


def test_a_target_cannot_bring_its_own_version() -> None:
    with pytest.raises(BadRequest):
        request_head(b"GET", b"/ HTTP/1.0", [b"host: w"], [], 0)


@given(fields=st.lists(st.tuples(TOKEN, VALUE), max_size=5), length=st.integers(0, 9))
def test_a_head_has_exactly_the_lines_it_was_given_or_is_refused(
    fields: list[tuple[bytes, bytes]], length: int
) -> None:
    clean = not any(byte in value for _, value in fields for byte in (b"\r", b"\n", b"\0"))
    try:
        head = request_head(b"POST", b"/", [b"host: w"], fields, length)
    except BadRequest:
        assert not clean
    else:
        assert clean
        lines = [name + b": " + value for name, value in fields]
        assert head.split(b"\r\n")[3:] == [*lines, b"", b""]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([], True),
        ([(b"content-length", b"0")], False),
        ([(b"transfer-encoding", b"chunked")], False),
        ([(b"transfer-encoding", b"gzip, Chunked")], False),
        ([(b"transfer-encoding", b"gzip")], True),
    ],
)
def test_what_ends_a_body(fields: list[tuple[bytes, bytes]], *, expected: bool) -> None:
    assert ends_with_connection(fields) is expected
