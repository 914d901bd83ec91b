from __future__ import annotations

import contextlib
import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from router.errors import ConfigError
from router.fleet.spec import SETTINGS, WorkerSpec, from_mapping, parse_worker


def test_a_url_alone_leaves_everything_to_the_worker() -> None:
    assert parse_worker("http://gpu1:8000") == WorkerSpec(url="http://gpu1:8000")


def test_every_setting_of_the_string_is_read() -> None:
    text = (
        "https://gpu1:8000/prefix,kv=tcp://gpu1:5557,replay=tcp://gpu1:5657,topic=a=b,block-size=64,dp=2,"
        "engine=vllm,role=prefill,bind=true"
    )
    assert parse_worker(text) == WorkerSpec(
        url="https://gpu1:8000/prefix",
        kv="tcp://gpu1:5557",
        replay="tcp://gpu1:5657",
        topic="a=b",
        block_size=64,
        dp=2,
        engine="vllm",
        role="prefill",
        bind=True,
    )


def test_a_mapping_of_the_configuration_file_gives_the_same() -> None:
    text = "{url: 'http://gpu1', kv: 'tcp://*:5557', block_size: 64, dp: 2, bind: true, topic: '', replay: }"
    assert from_mapping(yaml.safe_load(text)) == parse_worker(
        "http://gpu1,kv=tcp://*:5557,block-size=64,dp=2,bind=true,topic="
    )


def test_names_take_a_hyphen_or_an_underscore_in_both_forms() -> None:
    assert parse_worker("http://a,block_size=16") == from_mapping({"url": "http://a", "block-size": 16})


def test_blanks_around_settings_do_not_count() -> None:
    assert parse_worker(" http://a , dp = 2 ") == WorkerSpec(url="http://a", dp=2)


def test_the_host_of_an_ipv6_url_has_no_brackets() -> None:
    assert parse_worker("http://[fd00::7]:8000").host == "fd00::7"


@pytest.mark.parametrize(
    "host", ["0177.0.0.1", "127.1", "2130706433", "0x7f.1", "0x", "10.0.0.256", "10.0.0.1."]
)
def test_an_address_has_one_spelling(host: str) -> None:
    with pytest.raises(ConfigError, match="url: expected an IPv4 address as four decimal numbers"):
        parse_worker(f"http://{host}:8000")


@pytest.mark.parametrize("host", ["10.0.0.1", "gpu1", "gpu.1a", "1gpu", "0xgpu", "[::1]", "a.b-1"])
def test_names_with_numbers_are_names(host: str) -> None:
    assert parse_worker(f"http://{host}:8000").url == f"http://{host}:8000"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "gpu1:8000",
        "ftp://gpu1",
        "http://",
        "http://:8000",
        "http://gpu1:",
        "http://gpu1:0",
        "http://gpu1:65536",
        "http://gpu1:x",
        "http://gpu1?a",
        "http://gpu1#a",
        "http://me@gpu1",
        "http://me:secret@gpu1",
        "http://gpu 1",
        "http://gpu1\n",
        "http://[::1",
        "http://[gpu1]",
        "http://gp*u",
        "http://gpü",
    ],
)
def test_a_url_that_no_worker_can_have_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"url: expected http://host:port or https://host:port") as caught:
        from_mapping({"url": url})
    assert caught.value.param == "url"


@pytest.mark.parametrize(
    ("setting", "name", "expected"),
    [
        ("speed=9", "setting", "one of kv, replay, topic"),
        ("", "setting", "name=value"),
        ("bind", "setting", "name=value"),
        ("dp=1,dp=2", "dp", "given once"),
        ("block-size=1,block_size=1", "block-size", "given once"),
        ("block-size=16.0", "block-size", "a whole number from 1 to 1048576"),
        ("block-size=0", "block-size", "a whole number from 1 to 1048576"),
        ("block-size=²", "block-size", "a whole number"),
        ("block-size=" + "9" * 5000, "block-size", "a whole number"),
        ("dp=-1", "dp", "a whole number from 1 to 1024"),
        ("dp=", "dp", "a whole number from 1 to 1024"),
        ("engine=trt", "engine", "one of sglang, vllm"),
        ("role=Prefill", "role", "one of both, prefill, decode"),
        ("bind=yes", "bind", "true or false"),
        ("kv=", "kv", "tcp://host:port"),
        ("kv=gpu1:5557", "kv", "tcp://host:port"),
        ("kv=udp://gpu1:5557", "kv", "tcp://host:port"),
        ("kv=tcp://gpu1", "kv", "a port from 1 to 65535"),
        ("kv=tcp://gpu1:0", "kv", "a port from 1 to 65535"),
        ("kv=tcp://gpu1:65536", "kv", "a port from 1 to 65535"),
        ("kv=tcp://gpu1:²", "kv", "a port from 1 to 65535"),
        ("kv=tcp://:5557", "kv", "tcp://host:port"),
        ("kv=tcp://fd00::7:5557", "kv", "IPv6 host in brackets"),
        ("kv=tcp://[gpu1]:5557", "kv", "IPv6 host in brackets"),
        ("kv=ipc://", "kv", "ipc://path"),
        ("kv=ipc://" + "a" * 108, "kv", "ipc://path"),
        ("replay=tcp://a b:5557", "replay", "tcp://host:port"),
        ("dp=2,kv=tcp://gpu1:65535", "kv", "2 ports, or 2 addresses, one per rank"),
        ("dp=3,kv=tcp://a:1|tcp://b:2", "kv", "3 addresses, one per rank"),
        ("dp=2,kv=tcp://a:1|udp://b:2", "kv", "tcp://host:port"),
        ("dp=2,kv=ipc:///run/kv", "kv", "2 ports, or 2 addresses, one per rank"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line_with_what_was_expected(
    setting: str, name: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_worker(f"http://gpu1:8000,{setting}")
    message = caught.value.message
    assert message.startswith(f"worker 'http://gpu1:8000': {name}: expected ")
    assert expected in message
    assert "\n" not in message
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("mapping", "name"),
    [
        ({}, "url"),
        ({"url": 8000}, "url"),
        ({"url": "http://a", 1: 2}, "setting"),
        ({"url": "http://a", "kv": ["tcp://a:1"]}, "kv"),
        ({"url": "http://a", "topic": 5}, "topic"),
        ({"url": "http://a", "dp": True}, "dp"),
        ({"url": "http://a", "dp": 2.0}, "dp"),
        ({"url": "http://a", "bind": 1}, "bind"),
        ({"url": "http://a", "engine": ["vllm"]}, "engine"),
    ],
)
def test_a_value_of_another_yaml_type_is_refused(mapping: dict[object, object], name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping(mapping)
    assert caught.value.param == name


@pytest.mark.parametrize(
    "kv", ["tcp://[fd00::7]:5557", "tcp://*:1", "tcp://[::]:65535", "ipc:///run/kv", "ipc://@kv"]
)
def test_every_kind_of_address_is_kept_as_given(kv: str) -> None:
    assert parse_worker(f"http://a,kv={kv}").kv == kv


def message_of(text: str) -> str:
    try:
        parse_worker(text)
    except ConfigError as error:
        return error.message
    return ""


@given(st.text() | st.text(alphabet=string.printable))
def test_any_text_is_a_spec_or_a_one_line_error(text: str) -> None:
    assert message_of(text).isprintable()


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text())


@given(st.dictionaries(st.sampled_from(SETTINGS), VALUES))
def test_any_mapping_is_a_spec_or_an_error(mapping: dict[object, object]) -> None:
    with contextlib.suppress(ConfigError):
        assert from_mapping({"url": "http://a"} | mapping).url == "http://a"
