from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.api.door import Door
from router.api.keyfile import KeyFile
from router.api.keys import Keyring, default_name, digest_of, read_keys
from router.api.knocks import Knocks
from router.errors import ConfigError, NotAllowed, RateLimited
from router.proxy.forwarding import Forwarding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from router.api.keys import Client, ClientLimits

SECRET = "sk-51d6b8e3f0c4"
SENDER = Forwarding().sender("192.0.2.1", "http")
SAID = "name=..., requests-per-second=..., burst=..., prompt-tokens-per-minute=..."


def ring(text: str) -> Keyring:
    keys = Keyring()
    read: dict[bytes, tuple[str, ClientLimits]] = {}
    read_keys(text, read, "keys.txt")
    keys.hold(read)
    return keys


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        ring(text)
    return caught.value.message


def who(keys: Keyring, name: bytes, value: bytes) -> str | None:
    client = keys.client_of([(b"host", b"a"), (name, value), (b"accept", b"*/*")])
    return client.name if client is not None else None


@pytest.mark.parametrize(
    ("name", "value", "known"),
    [
        (b"authorization", b"Bearer " + SECRET.encode(), True),
        (b"authorization", b"bearer  " + SECRET.encode() + b" ", True),
        (b"x-api-key", SECRET.encode(), True),
        (b"authorization", SECRET.encode(), False),
        (b"authorization", b"Basic " + SECRET.encode(), False),
        (b"authorization", b"Bearer " + SECRET.encode() + b"x", False),
        (b"authorization", b"Bearer " + SECRET.encode()[:-1], False),
        (b"authorization", b"Bearer ", False),
        (b"x-api-key", b"", False),
        (b"x-api-key", b"Bearer " + SECRET.encode(), False),
        (b"cookie", SECRET.encode(), False),
    ],
)
def test_a_key_is_known_in_either_place_whole(name: bytes, value: bytes, *, known: bool) -> None:
    assert who(ring(f"{SECRET} name=batch"), name, value) == ("batch" if known else None)


@given(st.binary(max_size=40))
def test_nothing_else_is_a_key(value: bytes) -> None:
    keys = ring(f"{SECRET}\nsha256:{hashlib.sha256(b'other-key').hexdigest()}")
    for field in (b"authorization", b"x-api-key"):
        assert who(keys, field, value) is None


def test_one_valid_key_among_several_is_enough() -> None:
    fields = [(b"authorization", b"Bearer wrong-key"), (b"x-api-key", SECRET.encode())]
    assert ring(SECRET).client_of(fields) is not None


def test_the_digest_of_a_key_stands_for_it() -> None:
    text = f"sha256:{hashlib.sha256(SECRET.encode()).hexdigest()} name=search"
    assert who(ring(text), b"x-api-key", SECRET.encode()) == "search"
    assert who(ring(text), b"x-api-key", text.encode()) is None


def test_comments_names_and_two_keys_of_one_client() -> None:
    keys = ring(f"# a comment\n\n  {SECRET}\tname=a  burst=2 requests-per-second=1\n"
                "sk-newer-one name=a requests-per-second=1 burst=2\nsk-nameless\n")  # fmt: skip
    assert [client.name for client in keys.clients()] == ["a", default_name(digest_of("sk-nameless"))]
    first = keys.client_of([(b"x-api-key", SECRET.encode())])
    assert first is keys.client_of([(b"x-api-key", b"sk-newer-one")])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("short", "keys.txt:2: expected a key of 8 or more visible ASCII characters"),
        ("schlüssel-lang", "keys.txt:2: expected a key of 8 or more visible ASCII characters"),
        (SECRET, "keys.txt:2: the key is given twice"),
        (
            "sk-another name=first burst=1",
            "keys.txt:2: burst: expected 1 or more, beside requests-per-second",
        ),
        ("sk-another requests-per-second=x", "keys.txt:2: requests-per-second: expected a number"),
        ("sk-another prompt-tokens-per-minute=-1", "keys.txt:2: prompt-tokens-per-minute: expected a number"),
        (
            "sk-another name=first requests-per-second=2",
            "keys.txt:2: there is another first with other limits",
        ),
        ("sk-another name=a{b}", "keys.txt:2: name: expected up to 64 letters, digits or any of . : @ / _ -"),
        (
            "sk-another sk-third",
            f"keys.txt:2: expected {SAID}, each at most once",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line_that_shows_no_key(line: str, expected: str) -> None:
    message = refusal(f"{SECRET} name=first\n{line}")
    assert message == expected
    assert SECRET not in message
    assert line.split(maxsplit=1)[0] not in message


def at(now: float) -> Callable[[], float]:
    return lambda: now


def client(text: str) -> Client:
    return ring(text).clients()[0]


def test_requests_over_the_rate_are_told_when_to_come_again() -> None:
    one = client(f"{SECRET} requests-per-second=0.5 burst=2")
    one.take_request(at(0.0))
    one.take_request(at(0.0))
    with pytest.raises(RateLimited) as caught:
        one.take_request(at(0.5))
    assert (caught.value.status, caught.value.retry_after) == (429, 2)
    one.take_request(at(2.5))
    assert (one.admitted, one.limited) == (3, 1)


def test_prompt_tokens_over_the_limit_are_told_when_to_come_again() -> None:
    one = client(f"{SECRET} prompt-tokens-per-minute=600")
    one.take_prompt(600, at(0.0))
    with pytest.raises(RateLimited) as caught:
        one.take_prompt(100, at(0.0))
    assert caught.value.retry_after == 11
    one.take_prompt(100, at(10.0))


def test_without_limits_nothing_is_limited() -> None:
    one = client(SECRET)
    for _ in range(10_000):
        one.take_request(at(0.0))
        one.take_prompt(10**6, at(0.0))


async def test_a_file_that_changes_changes_the_keys_and_a_wrong_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{SECRET} name=a requests-per-second=1")
    keys = Keyring()
    file = KeyFile(keys, str(path), ["sk-from-elsewhere"])
    file.load()
    first = keys.client_of([(b"x-api-key", SECRET.encode())])
    path.write_text(f"{SECRET} name=a requests-per-second=1\nsk-newer-one name=b")
    await file.reload()
    assert who(keys, b"x-api-key", b"sk-newer-one") == "b"
    assert keys.client_of([(b"x-api-key", SECRET.encode())]) is first  # with what it has used
    for wrong in (f"{SECRET}\nshort", "\xff"):
        path.write_bytes(wrong.encode("latin-1"))
        await file.reload()
    path.unlink()
    await file.reload()
    assert who(keys, b"x-api-key", b"sk-newer-one") == "b"
    path.write_text("sk-newer-one name=b")
    await file.reload()
    assert who(keys, b"x-api-key", SECRET.encode()) is None
    assert who(keys, b"x-api-key", b"sk-from-elsewhere")
    assert SECRET not in caplog.text
    assert "short" not in caplog.text


def test_a_file_without_keys_lets_nobody_in_by_mistake(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# none\n")
    with pytest.raises(ConfigError, match="found none"):
        KeyFile(Keyring(), str(path), []).load()


def test_a_file_that_is_a_key_by_mistake_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        KeyFile(Keyring(), SECRET, []).load()
    assert SECRET not in caught.value.message


def test_the_door_counts_whom_it_lets_in() -> None:
    now = [0.0]
    keys = ring(f"{SECRET} requests-per-second=1")
    door = Door(keys, lambda: now[0], metrics_need_key=True)
    fields = [(b"x-api-key", SECRET.encode())]
    door.admit(fields, SENDER)
    door.admit(fields, SENDER, counted=False)
    with pytest.raises(RateLimited):
        door.admit(fields, SENDER)
    with pytest.raises(NotAllowed):
        door.admit([], SENDER)
    assert door.refused == 1
    now[0] = 1.0
    door.admit(fields, SENDER)


async def test_who_is_refused_is_told_with_addresses_of_which_a_line_names_a_few(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    due: list[tuple[float, Callable[[], None]]] = []

    def later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        due.append((now[0] + seconds, call))
        return asyncio.get_running_loop().call_later(3600, call)

    knocks = Knocks("for want of a valid key", lambda: now[0], later)
    knocks.refused("a")
    for number in range(200):
        for _ in range(2 if number < 3 else 1):
            knocks.refused(f"10.0.0.{number}")
    ((now[0], tell),) = due
    tell()
    first, second = caplog.messages
    assert first == "requests refused for want of a valid key: 1, from a (1)"
    said, _, named = second.partition(", from ")
    assert (said, now[0]) == ("requests refused for want of a valid key: 203", 160.0)
    assert named.split(", ")[:3] == ["others (192)", "10.0.0.0 (2)", "10.0.0.1 (2)"]
    assert len(named.split(", ")) == 9
    knocks.close()
    assert len(caplog.messages) == 2
    knocks.refused("b")
    knocks.refused("b")
    assert len(caplog.messages) == 2
    knocks.close()
    assert caplog.messages[2] == "requests refused for want of a valid key: 2, from b (2)"


def test_only_what_says_nothing_is_open() -> None:
    door = Door(Keyring(), lambda: 0.0, metrics_need_key=False)
    assert [path for path in ("/", "/health", "/ready", "/metrics", "/openapi.json") if door.is_open(path)]
    closed = ("/workers", "/explain", "/v1/models", "/nowhere", "/watch", "/page", "/admin", "/docs")
    assert not [path for path in closed if door.is_open(path)]
    assert not Door(Keyring(), lambda: 0.0, metrics_need_key=True).is_open("/metrics")
