from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from router.config import ALL_OPTIONS, OPTIONS, SECTIONS, Config
from router.core.cost import POLICIES, Weights
from router.derived import weights_of
from router.errors import ConfigError
from router.fleet.spec import parse_worker
from router.layers import load
from router.proxy.route_limits import RouteLimits
from router.setting import Given
from router.variables import strays

URL = "http://127.0.0.1:30000"
OTHER = "http://127.0.0.1:30001"


def loaded(
    path: Path,
    file: str | None = None,
    flags: dict[str, str | tuple[str, ...]] | None = None,
    environ: dict[str, str] | None = None,
) -> Config:
    """Load from all three sources; a worker is there unless one of them names some."""
    flags = dict(flags or {})
    if file is not None:
        path.write_text(file)
        flags["config"] = str(path)
    return load(flags, {"KV_ROUTER_WORKER": URL} | (environ or {}))


def refusal(
    path: Path,
    file: str | None = None,
    flags: dict[str, str | tuple[str, ...]] | None = None,
    environ: dict[str, str] | None = None,
) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(path, file, flags, environ)
    return caught.value.message.replace(str(path), "router.yaml")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "router.yaml"


def test_nothing_but_a_worker_is_needed() -> None:
    assert load({"workers": (URL,)}, {}) == Config(workers=(parse_worker(URL),))


def test_every_field_has_its_setting_in_one_section_and_the_same_order() -> None:
    assert [field.name for field in fields(Config)] == list(OPTIONS)
    assert sum(map(len, SECTIONS.values())) == len(OPTIONS)


def test_the_weights_are_by_default_those_of_the_policy() -> None:
    config = load({"workers": (URL,)}, {})
    assert weights_of(config) == Weights()


@pytest.mark.parametrize("option", [o for o in OPTIONS.values() if o.default is not None])
def test_a_default_as_shown_reads_back_as_itself(option: Any) -> None:
    shown = option.shown_default
    parts = [Given("here", part) for part in shown.split()]
    assert option.read(Given("here", parts if option.setting.repeated else shown)) == option.default


def test_names_in_flags_environment_and_file_follow_from_the_field() -> None:
    names = {option.name: (option.flag, option.variable) for option in ALL_OPTIONS}
    assert names["workers"] == ("--worker", "KV_ROUTER_WORKER")
    assert names["probe_seconds"] == ("--probe-seconds", "KV_ROUTER_PROBE_SECONDS")
    assert names["retries"] == ("--retries", "KV_ROUTER_RETRIES")


def test_a_setting_in_seconds_tokens_blocks_or_bytes_has_that_unit() -> None:
    for option in OPTIONS.values():
        suffix = option.name.rsplit("_", 1)[-1]
        if suffix in {"seconds", "tokens", "blocks", "bytes"}:
            assert option.setting.unit == suffix


@pytest.mark.parametrize(
    ("flag", "variable", "in_file", "expected"),
    [
        (None, None, None, 8000),
        (None, None, 1, 1),
        (None, 2, None, 2),
        (None, 2, 1, 2),
        (3, None, None, 3),
        (3, None, 1, 3),
        (3, 2, None, 3),
        (3, 2, 1, 3),
    ],
)
def test_flags_beat_environment_beats_file(
    path: Path, flag: int | None, variable: int | None, in_file: int | None, expected: int
) -> None:
    config = loaded(
        path,
        file=f"port: {in_file}" if in_file else "",
        flags={"port": str(flag)} if flag else {},
        environ={"KV_ROUTER_PORT": str(variable)} if variable else {},
    )
    assert config.port == expected


def test_workers_of_a_stronger_source_replace_those_of_a_weaker(path: Path) -> None:
    path.write_text(f"workers: [{URL}, {OTHER}]")
    flags = {"config": str(path)}
    assert len(load(flags, {}).workers) == 2
    assert load(flags, {"KV_ROUTER_WORKER": OTHER}).workers == (parse_worker(OTHER),)
    assert load({**flags, "workers": (URL,)}, {"KV_ROUTER_WORKER": OTHER}).workers == (parse_worker(URL),)


def test_the_variable_holds_several_workers() -> None:
    config = load({}, {"KV_ROUTER_WORKER": f" {URL},dp=2 \n\t{OTHER} "})
    assert config.workers == (parse_worker(f"{URL},dp=2"), parse_worker(OTHER))


def test_the_config_flag_beats_its_variable(path: Path) -> None:
    environ = {"KV_ROUTER_CONFIG": "missing.yaml"}
    assert loaded(path, "port: 9", environ=environ).port == 9
    assert refusal(path, environ=environ) == "missing.yaml: cannot be read: No such file or directory"


def test_a_worker_in_the_file_is_a_text_or_a_mapping(path: Path) -> None:
    file = f"""
workers:
  - {URL},block-size=16
  - url: {OTHER}
    block-size: 16
    kv: tcp://127.0.0.1:5557
    bind: true
    topic:
"""
    path.write_text(file)
    assert load({"config": str(path)}, {}).workers == (
        parse_worker(f"{URL},block-size=16"),
        parse_worker(f"{OTHER},block-size=16,kv=tcp://127.0.0.1:5557,bind=true"),
    )


def test_a_file_spells_keys_with_either_dash(path: Path) -> None:
    config = loaded(path, "probe-seconds: 2\nidle_seconds: 3.5\n")
    assert (config.probe_seconds, config.idle_seconds) == (2.0, 3.5)


@pytest.mark.parametrize("file", ["", "# nothing\n", "---\n", "tokenizer:\nport: ~\n"])
def test_a_key_without_a_value_is_not_given(path: Path, file: str) -> None:
    assert loaded(path, file) == loaded(path)


def test_a_blank_variable_is_not_given(path: Path) -> None:
    assert loaded(path, environ={"KV_ROUTER_PORT": "", "KV_ROUTER_POLICY": " "}) == loaded(path)


def test_the_port_that_kubernetes_sets_for_a_service_is_not_ours(path: Path) -> None:
    environ = {"KV_ROUTER_PORT": "tcp://10.0.0.1:8000", "KV_ROUTER_SERVICE_HOST": "10.0.0.1"}
    assert loaded(path, environ=environ).port == 8000
    assert refusal(path, environ={"KV_ROUTER_PORT": "tcp://10.0.0.1:8000"}).startswith("KV_ROUTER_PORT: ")
    other = {"KV_ROUTER_EPP_PORT": "tcp://10.0.0.1:9002", "KV_ROUTER_EPP_SERVICE_HOST": "10.0.0.1"}
    assert loaded(path, environ=other).epp_port == 0
    assert strays(environ | other) == []


def test_a_variable_that_is_no_setting_is_told_with_the_nearest_and_without_its_value() -> None:
    environ = {"KV_ROUTER_WORKERS": "http://a", "KV_ROUTER_XYZZY": "1", "KV_ROUTER_PROT": " ", "OTHER": "1"}
    assert strays(environ | {"KV_ROUTER_URL": "http://b", "KV_ROUTER_API_KEY": "secret-key"}) == [
        "KV_ROUTER_WORKERS: unknown variable, ignored; expected KV_ROUTER_WORKER",
        "KV_ROUTER_XYZZY: unknown variable, ignored; expected one that kv-router serve --help lists",
    ]


PORT = "expected a whole number from 0 to 65535, got"
WORKER_URL = "expected http://host:port or https://host:port, no query, fragment or user"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("port: yes", f"router.yaml:1: port: {PORT} 'yes'"),
        ("\n\nport: [1]", f"router.yaml:3: port: {PORT} a list"),
        ("port: {a: b}", f"router.yaml:1: port: {PORT} a mapping"),
        ("port: 1.5", f"router.yaml:1: port: {PORT} '1.5'"),
        ("port: 65536", f"router.yaml:1: port: {PORT} '65536'"),
        ("prot: 1", "router.yaml:1: prot: unknown key, expected port"),
        ("port: 1\nport: 2", f"router.yaml:2: port: {PORT} a second value"),
        (
            "idle-seconds: 1\nidle_seconds: 2",
            "router.yaml:2: idle_seconds: expected a number from 0 to 86400 seconds, got a second value",
        ),
        ("host: a\nport: 1: 2", "router.yaml:2: not YAML: mapping values are not allowed here"),
        ("host: [a", "router.yaml:1: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("- port", "router.yaml: expected keys and values, such as 'port: 8000', got a list"),
        ("port", "router.yaml: expected keys and values, such as 'port: 8000', got text"),
        ("? [a]\n: 1", "router.yaml:1: expected a key, got a list"),
        (
            f"workers: {URL}",
            f"router.yaml:1: workers: expected a list of URL[,setting=value...], got '{URL}'",
        ),
        ("workers:\n- [a]", "router.yaml:2: workers: expected URL[,setting=value...], got a list"),
        (
            "workers:\n- url: {a: b}",
            f"router.yaml:2: workers: a worker: url: {WORKER_URL}, got a mapping",
        ),
        (
            "probe_seconds: .nan",
            "router.yaml:1: probe_seconds: expected a number from 0.05 to 3600 seconds, got '.nan'",
        ),
        ("host: !!python/name:os.system ''", "router.yaml:1: host: expected a host name or address, got ''"),
    ],
)
def test_a_wrong_file_is_refused_by_line_and_key(path: Path, file: str, message: str) -> None:
    assert refusal(path, file) == message


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("value", ["[[1]]", "[{a: [1]}]", "{a: {b: 1}}", "[&a [*a]]", '"\\e[31m\\n\\0"'])
def test_a_value_of_a_wrong_shape_is_one_line_with_its_key(path: Path, name: str, value: str) -> None:
    message = refusal(path, f"{name}: {value}")
    assert message.startswith(f"router.yaml:1: {name}: ")
    assert message.isprintable()


def test_a_wrong_worker_is_refused_where_it_stands(path: Path) -> None:
    said = f"worker '{OTHER}': dp: expected a whole number from 1 to 1024, got '0'"
    worker = f"{OTHER},dp=0"
    assert refusal(path, flags={"workers": (URL, worker)}) == f"--worker: {said}"
    assert refusal(path, environ={"KV_ROUTER_WORKER": f"{URL} {worker}"}) == f"KV_ROUTER_WORKER: {said}"
    assert refusal(path, f"workers:\n- {URL}\n- {worker}") == f"router.yaml:3: workers: {said}"
    assert refusal(path, f"workers:\n- url: {OTHER}\n  dp: 0") == f"router.yaml:2: workers: {said}"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::1", "fe80::1%eth0", "localhost", "a-b.example."])
def test_a_host_is_an_address_or_a_name(path: Path, host: str) -> None:
    assert loaded(path, flags={"host": host}).host == host


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "http://a", "[::1]", "a b", ".", ""])
def test_what_can_be_no_host_is_refused_before_it_is_looked_up(path: Path, host: str) -> None:
    assert refusal(path, flags={"host": host}).startswith("--host: expected a host name or address")


def test_an_unknown_policy_is_refused_with_the_known_ones(path: Path) -> None:
    message = refusal(path, flags={"policy": "best"})
    assert message == f"--policy: expected one of {', '.join(POLICIES)}, or module:function, got 'best'"


def test_an_unknown_key_like_no_other_is_refused_with_where_all_known_ones_are(path: Path) -> None:
    assert refusal(path, "zzz: 1") == (
        "router.yaml:1: zzz: unknown key, expected one that kv-router config schema lists"
    )


def test_a_wrong_value_is_refused_also_where_a_stronger_source_would_hide_it(path: Path) -> None:
    assert refusal(path, "port: x", flags={"port": "1"}).startswith("router.yaml:1: port: ")


def test_one_worker_given_twice_is_refused(path: Path) -> None:
    message = refusal(path, flags={"workers": (URL, f"{URL}/,dp=2")})
    assert message == f"worker {URL} given 2 times: expected each --worker URL once"


@pytest.mark.parametrize("file", [None, "", "workers: []"])
def test_no_worker_at_all_is_refused(path: Path, file: str | None) -> None:
    message = refusal(path, file, environ={"KV_ROUTER_WORKER": ""})
    assert message == (
        "no worker given: expected --worker URL, KV_ROUTER_WORKER, or workers in a --config file "
        "(or --worker-file, --discover, or --admin-key, to add them later)"
    )


def test_with_an_admin_key_workers_can_come_later(path: Path) -> None:
    given = {"KV_ROUTER_WORKER": "", "KV_ROUTER_ADMIN_KEY": "0123456789abcdef"}
    assert loaded(path, environ=given).workers == ()


def test_ranges_of_addresses_are_read_as_they_are_meant(path: Path) -> None:
    config = loaded(path, "worker_allow: [10.0.0.0/8, 'fd00::/8', 127.0.0.1]")
    assert list(map(str, config.worker_allow)) == ["10.0.0.0/8", "fd00::/8", "127.0.0.1/32"]
    for wrong in ("10.0.0.1/8", "10.0.0.0/33", "host", ""):
        message = refusal(path, flags={"worker_allow": (wrong,)})
        assert message.startswith("--worker-allow: expected a range of addresses such as 10.0.0.0/8, got ")


def test_statuses_are_given_one_by_one(path: Path) -> None:
    assert loaded(path, environ={"KV_ROUTER_BREAKER_CODE": "500 529"}).breaker_codes == (500, 529)


def test_a_directory_and_bytes_that_are_no_text_are_refused(path: Path) -> None:
    path.write_bytes(b"host: \xff")
    with pytest.raises(ConfigError, match=r"expected UTF-8 text"):
        load({"config": str(path)}, {})
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
        load({"config": str(path.parent)}, {})


def config_or_refusal(flags: dict[str, str]) -> Config | str:
    """Return the config, or the message of the ConfigError; nothing else may come out."""
    try:
        return load(flags, {"KV_ROUTER_WORKER": URL})
    except ConfigError as error:
        return error.message


def read_as_file(text: str) -> Config | str:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "c.yaml"
        path.write_text(text, "utf-8", "surrogatepass", newline="")
        return config_or_refusal({"config": str(path)})


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*OPTIONS, "other"]), VALUES, max_size=4))
def test_any_values_in_a_file_make_a_config_or_a_refusal(values: dict[str, Any]) -> None:
    found = read_as_file(yaml.safe_dump(values))
    if isinstance(found, Config):
        assert 0 <= found.port <= 65535
        assert found.policy in POLICIES
        assert 0.05 <= found.probe_seconds <= 3600


@given(st.text(alphabet=st.characters() | st.sampled_from("[]{}:,-?&*!|>'\"%@#\n\t ")))
@example('host: "\\UFFFFFFFF"')
@example('host: "\\U7FFFFFFFF"')
@example("%YAML " + "9" * 5000 + ".1\n---\na: 1")
@example("[" * 2000)
@example("&a {port: *a}")
@example("&a {*a : 1}")
@example("\x00")
@example("--- a\n--- b\n")
def test_any_text_as_a_file_makes_a_config_or_a_refusal(text: str) -> None:
    found = read_as_file(text)
    assert isinstance(found, Config) or "c.yaml" in found


@given(st.sampled_from([o for o in OPTIONS.values() if not o.setting.repeated]), st.text())
def test_any_text_as_a_flag_makes_a_config_or_a_refusal_that_names_it(option: Any, text: str) -> None:
    found = config_or_refusal({option.name: text})
    assert isinstance(found, Config) or found.startswith(f"{option.flag}: expected ")


@pytest.mark.parametrize("name", ["admin_key", "worker_api_key", "api_key"])
def test_a_wrong_secret_is_not_shown(path: Path, name: str) -> None:
    wrong = "ke y"
    message = refusal(path, f"{name}: {[wrong] if name == 'api_key' else wrong}")
    assert wrong not in message
    assert "got another value" in message


# Long enough to reach beyond what is shown of a wrong value.
PASSWORD = "hunter-2" * 12
LEAKS = {
    "a key that is no list": "api_key: PASSWORD",
    "a key that is a list within a list": "api_key: [[PASSWORD]]",
    "an admin key that is a list": "admin_key: [PASSWORD]",
    "no space behind the colon": "admin_key:PASSWORD",
    "no space behind the colon, with more behind": "admin_key:PASSWORD: 1",
    "no space behind the colon, in a list": "api_key:\n- key:PASSWORD: 1",
    "another sign": "admin_key=PASSWORD: 1",
    "an alias": "admin_key: *PASSWORD",
    "a tag's handle": "admin_key: !PASSWORD!x",
    "an anchor": "a: &PASSWORD 1\nb: &PASSWORD 2\nc: *d",
    "a quote that does not end": "admin_key: 'PASSWORD",
    "a worker's URL": "workers: ['http://user:PASSWORD@host:1']",
    "with settings": "workers: ['http://user:PASSWORD@host:1,dp=0,kv=tcp://user:PASSWORD@h:1']",
    "with a comma": "workers: ['http://user:1,PASSWORD@host:1,dp=0']",
    "with a comma and a sign": "workers: ['http://user:PASSWORD,a=b@host:1,dp=0']",
    "in a mapping": "workers: [{url: 'http://user:PASSWORD@host:1', dp: 0, 'x@PASSWORD@h': 1}]",
    "workers that are no list": "workers: http://user:PASSWORD@host:1",
    "a collector's": "otlp: http://user:PASSWORD@host:4318",
    "not escaped": "otlp: http://user:PASSWORD/@PASSWORD@host:4318",
    "another place for it": "port: http://user:PASSWORD@host:4318",
    "where routers meet": "share: redis://user:PASSWORD@host:port",
    "where routers meet, misspelt": "share: redis:/user:PASSWORD@host",
}


@pytest.mark.parametrize("file", LEAKS.values(), ids=LEAKS)
def test_neither_a_secret_nor_the_user_of_a_url_is_shown(path: Path, file: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(path, file.replace("PASSWORD", PASSWORD))
    said = "".join(caught.value.lines).replace(str(path), "")
    assert "hunter" not in said
    assert "user" not in said.replace("no query, fragment or user", "").replace("//[[user]:password@]", "")


def test_the_variable_holds_several_keys(path: Path) -> None:
    assert loaded(path, environ={"KV_ROUTER_API_KEY": "first-key second-key"}).api_key == (
        "first-key",
        "second-key",
    )


def test_limits_of_a_route_in_the_file_are_a_text_or_a_mapping(path: Path) -> None:
    file = "route_limits:\n- /v1/x,total=5\n- path: /v1/y\n  first_byte: 1\n  idle: 0"
    assert loaded(path, file).route_limits == (
        RouteLimits("/v1/x", total=5.0),
        RouteLimits("/v1/y", first_byte=1.0, idle=0.0),
    )
    said = refusal(path, "route_limits:\n- path: /v1/y\n  last: 1")
    assert said.startswith("router.yaml:2: route_limits: limits of route '/v1/y': setting: expected one of")


@pytest.mark.parametrize(("text", "value"), [(".5", 0.5), ("2.", 2.0), ("1e1", 10.0)])
def test_a_number_may_be_written_as_people_do(text: str, value: float) -> None:
    assert load({"workers": (URL,), "probe_seconds": text}, {}).probe_seconds == value


@pytest.mark.parametrize(
    "selector",
    [
        "app=vllm",
        "app = vllm , tier in (a, b)",
        "!spot",
        "a==b,c!=d,e notin (f),g>3,h<-1,i",
        "kubernetes.io/service-name=workers",
        "a=",
        "a in ()",
    ],
)
def test_a_selector_is_what_the_api_server_would_take(path: Path, selector: str) -> None:
    assert loaded(path, flags={"kubernetes_selector": selector}).kubernetes_selector == selector


@pytest.mark.parametrize(
    "selector", ["a in b", ",,", "a,", "a=b=c", "a b", "a in (b", "=b", "a>b", "A/b=c", "-a"]
)
def test_another_selector_is_refused(path: Path, selector: str) -> None:
    expected = "expected a label selector such as app=vllm,tier in (a,b)"
    assert refusal(path, flags={"kubernetes_selector": selector}).startswith(
        f"--kubernetes-selector: {expected}, got"
    )


@pytest.mark.parametrize(("port", "taken"), [("8000", 1), ("65535", 1), ("http", 1), ("99999", 0), ("0", 0)])
def test_a_port_in_the_cluster_is_a_name_or_a_number_that_ports_have(
    path: Path, port: str, *, taken: int
) -> None:
    flags: dict[str, str | tuple[str, ...]] = {"kubernetes_port": port}
    if taken:
        assert loaded(path, flags=flags).kubernetes_port == port
    else:
        expected = "--kubernetes-port: expected a port's name, or its number from 1 to 65535"
        assert refusal(path, flags=flags) == f"{expected}, got {port!r}"
