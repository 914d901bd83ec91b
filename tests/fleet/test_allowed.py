"""Only addresses within the ranges, whatever a name, a setting or a worker says."""

from __future__ import annotations

import socket
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest

from router.engines.description import Description, EventSource
from router.errors import BadRequest, NotPermitted
from router.fleet.allowed import Allowed, Confined
from router.fleet.spec import parse_worker

LOCAL = Allowed([ip_network("127.0.0.0/8"), ip_network("::1/128")])


def described(*sources: EventSource | None) -> Description:
    fields: dict[str, Any] = {"bigram": False, "role": "both", "why_no_events": ""}
    fields |= dict.fromkeys(("tokenizer_path", "started", "version", "block_size"))
    return Description(
        engine="sglang", model="m", aliases=(), adapters={}, dp=len(sources), sources=sources, **fields
    )


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
    ],
)
async def test_an_address_in_a_range_is_allowed_however_it_is_written(host: str, address: str) -> None:
    assert await LOCAL.address(host, "url") == address


@pytest.mark.parametrize(
    ("host", "got"),
    [
        *((host, host) for host in ("10.0.0.1", "::ffff:10.0.0.1", "0.0.0.0", "::", "169.254.169.254")),
        ("0xa000001", "10.0.0.1, which 0xa000001 stands for"),
    ],
)
async def test_any_other_is_not_and_an_address_is_said_once(host: str, got: str) -> None:
    with pytest.raises(NotPermitted) as no:
        await LOCAL.address(host, "url")
    assert (no.value.status, no.value.param) == (403, "url")
    assert no.value.message == f"url: expected an address in 127.0.0.0/8, ::1/128, got {got}"


async def test_without_ranges_nothing_is_allowed() -> None:
    with pytest.raises(NotPermitted, match="--worker-allow"):
        await Allowed().address("127.0.0.1", "url")


async def test_every_address_of_a_name_must_be_allowed() -> None:
    found = {str(each[4][0]) for each in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)}
    assert await LOCAL.address("localhost", "url") in found
    for address in found:
        with pytest.raises(NotPermitted):
            await Allowed([ip_network("10.0.0.0/8"), *(ip_network(a) for a in found - {address})]).address(
                "localhost", "url"
            )


async def test_a_name_without_an_address_is_a_wrong_value() -> None:
    with pytest.raises(BadRequest, match="url: expected a host that has an address") as wrong:
        await LOCAL.address("no-such-host.invalid", "url")
    assert wrong.value.param == "url"


@pytest.mark.parametrize("name", ["kv", "replay"])
@pytest.mark.parametrize(
    "endpoint", ["tcp://10.0.0.1:5557", "ipc:///tmp/x", "tcp://127.0.0.1:1|tcp://10.0.0.1:1"]
)
async def test_events_are_held_to_the_same_ranges(name: str, endpoint: str) -> None:
    spec = parse_worker(f"http://127.0.0.1:1,{name}={endpoint},dp={endpoint.count('|') + 1}")
    confined = await Confined.at(LOCAL, spec)
    with pytest.raises(NotPermitted) as no:
        await confined.spec(spec)
    assert no.value.param == name


async def test_names_in_settings_become_the_addresses_that_were_checked() -> None:
    spec = parse_worker("http://localhost:1,kv=tcp://localhost:5557|tcp://*:5558,replay=tcp://127.1:1,dp=2")
    confined = Confined(LOCAL, spec.host, "127.0.0.9")
    spec = await confined.spec(spec)
    assert (spec.kv, spec.replay) == ("tcp://127.0.0.9:5557|tcp://*:5558", "tcp://127.0.0.1:1")
    bound = parse_worker("http://localhost:1,kv=tcp://10.0.0.1:5557,bind=true")
    assert await confined.spec(bound) == bound


async def test_what_a_worker_reports_is_confined_too() -> None:
    here = EventSource("tcp://w:1", "tcp://w:2", "", bind=False)
    elsewhere = EventSource("tcp://10.0.0.1:1", None, "", bind=False)
    replays_elsewhere = EventSource("tcp://w:1", "tcp://10.0.0.1:2", "", bind=False)
    local = EventSource("ipc:///run/secret", None, "", bind=False)
    ours = EventSource("tcp://*:1", None, "", bind=True)
    said = described(here, elsewhere, replays_elsewhere, local, ours, None)
    said = await Confined(LOCAL, "w", "127.0.0.9").description(said)
    first = EventSource("tcp://127.0.0.9:1", "tcp://127.0.0.9:2", "", bind=False)
    assert said.sources == (first, None, None, None, ours, None)
    assert "expected tcp://host:port" in said.why_no_events


async def test_load_sockets_are_held_to_the_same_ranges() -> None:
    confined = await Confined.at(LOCAL, parse_worker("http://127.0.0.1:1"))
    near, far = (
        EventSource(f"tcp://{host}:6000", None, "load", bind=False) for host in ("127.0.0.1", "10.0.0.1")
    )
    said = await confined.description(replace(described(None, None), loads=(near, far)))
    assert said.loads == (near, None)
    assert said.why_no_events == ""
