from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from router.proxy.forwarding import Forwarding

if TYPE_CHECKING:
    from router.proxy.headers import Field

TRUSTED = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]
CLAIMS = [
    (b"x-forwarded-for", b"1.1.1.1"),
    (b"x-forwarded-for", b"2.2.2.2"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"front"),
    (b"x-forwarded-port", b"443"),
    (b"x-real-ip", b"1.1.1.1"),
    (b"forwarded", b"for=1.1.1.1"),
]


def onward(
    fields: list[Field], address: str | None = "192.0.2.1", *, credentials: bool = True
) -> list[Field]:
    """Return what goes on, with the host that the client asked for put in."""
    sender = Forwarding(TRUSTED, credentials=credentials).sender(address, "http")
    return sender.onward([(b"host", b"asked"), *fields])[0]


def test_a_worker_is_told_who_asked_how_and_for_what() -> None:
    assert onward([(b"accept", b"*/*")]) == [
        (b"accept", b"*/*"),
        (b"x-forwarded-for", b"192.0.2.1"),
        (b"x-forwarded-proto", b"http"),
        (b"x-forwarded-host", b"asked"),
    ]


def test_what_a_client_says_of_itself_is_dropped() -> None:
    assert onward(CLAIMS) == onward([])


def test_what_a_trusted_proxy_says_is_kept_and_added_to() -> None:
    assert onward(CLAIMS, "10.1.2.3") == [
        (b"x-forwarded-port", b"443"),
        (b"x-real-ip", b"1.1.1.1"),
        (b"x-forwarded-for", b"1.1.1.1, 2.2.2.2, 10.1.2.3"),
        (b"x-forwarded-proto", b"https"),
        (b"forwarded", b"for=1.1.1.1, for=10.1.2.3;proto=http"),
        (b"x-forwarded-host", b"front"),
    ]
    assert onward([], "10.1.2.3")[:1] == [(b"x-forwarded-for", b"10.1.2.3")]


def test_an_address_of_six_is_quoted_where_it_has_to_be() -> None:
    fields = dict(onward(CLAIMS, "fd00::1"))
    assert fields[b"x-forwarded-for"].endswith(b", fd00::1")
    assert fields[b"forwarded"].endswith(b', for="[fd00::1]";proto=http')


@pytest.mark.parametrize("address", ["::ffff:10.0.0.1", "10.255.0.1", "fd12::3", None])
def test_trust_goes_by_the_address_however_a_socket_shows_it(address: str | None) -> None:
    assert (b"x-forwarded-proto", b"https") in onward(CLAIMS, address)


@pytest.mark.parametrize("address", ["11.0.0.1", "::ffff:11.0.0.1", "fe80::1%eth0", "::1"])
def test_nobody_else_is_trusted(address: str) -> None:
    assert (b"x-forwarded-proto", b"http") in onward(CLAIMS, address)


def test_connection_cannot_name_away_what_the_router_says() -> None:
    named = b"close, X-Forwarded-For, x-forwarded-proto, x-forwarded-host, x-private, host"
    assert onward([(b"connection", named), (b"x-private", b"1")]) == onward([])


def test_hop_by_hop_fields_and_what_is_settled_here_end_here() -> None:
    fields = [
        (b"connection", b"keep-alive"),
        (b"keep-alive", b"timeout=5"),
        (b"te", b"trailers"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"content-length", b"3"),
        (b"expect", b"100-continue"),
    ]
    assert onward(fields) == onward([])


def test_a_clients_key_is_the_workers_to_see_only_if_it_is_theirs_to_check() -> None:
    keys = [(b"authorization", b"Bearer k"), (b"x-api-key", b"k")]
    assert onward(keys)[:2] == keys
    assert onward(keys, credentials=False) == onward([])


def test_the_id_of_a_request_is_found() -> None:
    sender = Forwarding().sender("192.0.2.1", "http")
    assert sender.onward([(b"x-request-id", b"mine")])[1] == b"mine"
    assert sender.onward([])[1] == b""


def test_who_asks_is_named_by_address_and_a_trusted_proxy_also_by_what_it_says() -> None:
    forwarding = Forwarding(TRUSTED)
    assert forwarding.sender("192.0.2.1", "http").named(CLAIMS) == "192.0.2.1"
    assert forwarding.sender("10.0.0.1", "http").named(CLAIMS) == "1.1.1.1, 2.2.2.2 by 10.0.0.1"
    assert forwarding.sender("10.0.0.1", "http").named([]) == "10.0.0.1"
