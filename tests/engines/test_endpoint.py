from __future__ import annotations

import contextlib

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from router.engines.endpoint import MOST_PATH_BYTES, Endpoint, is_loopback

ADDRESSES = ["tcp://gpu1:5557", "tcp://*:5557", "tcp://[fd00::7]:5557", "tcp://0.0.0.0:1", "ipc:///run/kv"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_written_as_it_was_read(address: str) -> None:
    assert str(Endpoint.parse(address)) == address


def test_the_unbracketed_ipv6_wildcard_of_engines_is_read() -> None:
    assert str(Endpoint.parse("tcp://:::5557")) == "tcp://[::]:5557"


@given(st.text())
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    for address in (text, f"tcp://{text}", f"tcp://{text}:5557", f"ipc://{text}"):
        with contextlib.suppress(ValueError):
            assert Endpoint.parse(str(Endpoint.parse(address))) == Endpoint.parse(address)


def test_a_rank_has_its_own_port() -> None:
    assert str(Endpoint.parse("tcp://gpu1:5557").at_rank(3)) == "tcp://gpu1:5560"


def test_there_is_no_rank_past_the_last_port_nor_a_second_one_on_ipc() -> None:
    assert Endpoint.parse("tcp://gpu1:65535").at_rank(1) is None
    assert Endpoint.parse("ipc:///run/kv").at_rank(1) is None
    assert Endpoint.parse("ipc:///run/kv").at_rank(0) == Endpoint.parse("ipc:///run/kv")


@pytest.mark.parametrize("address", ["tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://[::]:5557"])
def test_a_wildcard_stands_for_the_workers_host(address: str) -> None:
    assert str(Endpoint.parse(address).with_host("fd00::7")) == "tcp://[fd00::7]:5557"


def test_a_named_host_stays() -> None:
    assert str(Endpoint.parse("tcp://gpu1:5557").with_host("gpu2")) == "tcp://gpu1:5557"


@pytest.mark.parametrize(
    ("address", "binds"),
    [
        ("tcp://*:5557", True),
        ("tcp://0.0.0.0:5557", True),
        ("tcp://[::]:5557", True),
        ("tcp://[fd00::7]:5557", True),
        ("ipc:///run/kv", True),
        ("tcp://127.0.0.1:5557", False),
        ("tcp://gpu1:5557", False),
        ("tcp://[1:2:3:4:5:6:7:8]:5557", False),
    ],
)
def test_an_engine_binds_only_where_its_address_holds_a_wildcard_mark(address: str, *, binds: bool) -> None:
    assert Endpoint.parse(address).engine_binds is binds


@pytest.mark.parametrize(
    ("address", "ours"),
    [
        ("tcp://router.svc:5557", "tcp://*:5557"),
        ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5557"),
        ("ipc:///run/kv", "ipc:///run/kv"),
    ],
)
def test_we_bind_every_interface_unless_the_engine_stays_on_its_machine(address: str, ours: str) -> None:
    assert str(Endpoint.parse(address).to_bind()) == ours


def test_loopback_is_known_by_name_and_by_number() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("gpu1", "10.0.0.1", "*", "0.0.0.0", "", "::")))


def test_the_path_limit_is_zeromqs() -> None:
    assert zmq.IPC_PATH_MAX_LEN == MOST_PATH_BYTES
