"""`kv-router config check` finds everything that is wrong with a file at once."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from router.checking import Found, checked
from router.errors import ConfigError
from router.layers import load

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = "neither the file nor a variable gives it here, so something has to where the router starts"
GOOD = "version: 1\nport: 0\nworkers:\n- http://a:1\n- url: http://b:1\n"


def check(path: Path, text: str | None) -> tuple[int, list[str], str]:
    """Return exit code, lines with the file's name left out, and what is on stderr."""
    if text is not None:
        path.write_text(text)
    ended = subprocess.run(
        [sys.executable, "-m", "router", "config", "check", path.name],
        capture_output=True,
        text=True,
        check=False,
        cwd=path.parent,
    )
    return ended.returncode, ended.stdout.replace(path.name, "FILE").splitlines(), ended.stderr


@pytest.mark.parametrize("text", [GOOD, "", "port: 1", "worker_file: somewhere.yaml"])
def test_a_file_that_the_router_takes_has_no_mistakes(tmp_path: Path, text: str) -> None:
    assert check(tmp_path / "f.yaml", text) == (0, ["FILE: no mistakes"], "")


def test_each_mistake_is_one_line_with_its_place(tmp_path: Path) -> None:
    text = (
        "prot: 1\nport: high\nworkers:\n- ftp://a\n- http://b:1\n- http://c:1,dp=0\nroute_limits: [/v1/x]\n"
    )
    code, lines, _ = check(tmp_path / "f.yaml", text)
    assert code == 1
    assert [line.split(": ")[0] for line in lines] == ["FILE:1", "FILE:2", "FILE:4", "FILE:6", "FILE:7"]
    assert lines[1] == "FILE:2: port: expected a whole number from 0 to 65535, got 'high'"


WRONG = """\
port: 1
workers:
- url: ftp://a
  rol: prefill
  dp: 0
  kv: {a: b}
- http://b:1,dp=0,engine=sglng,bind
- [http://c:1]
- url: http://d:1
  dp: 1
  dp: 2
route_limits:
- path: nope
  idle: x
  totl: 3
breaker_codes: [abc, 500, 9999]
port: 2
"\\e[31m": 1
"""
SAID = """\
FILE:17: port: expected a whole number from 0 to 65535, got a second value
FILE:3: workers: worker 'ftp://a': url: expected http://host:port or https://host:port, \
no query, fragment or user, got 'ftp://a'
FILE:3: workers: worker 'ftp://a': setting: expected role, got 'rol'
FILE:3: workers: worker 'ftp://a': dp: expected a whole number from 1 to 1024, got '0'
FILE:3: workers: worker 'ftp://a': kv: expected tcp://host:port (an IPv6 host in brackets) \
or ipc://path, got a mapping
FILE:7: workers: worker 'http://b:1': setting: expected name=value, got 'bind'
FILE:7: workers: worker 'http://b:1': dp: expected a whole number from 1 to 1024, got '0'
FILE:7: workers: worker 'http://b:1': engine: expected one of sglang, vllm, got 'sglng'
FILE:8: workers: expected URL[,setting=value...], got a list
FILE:9: workers: worker 'http://d:1': dp: expected a whole number from 1 to 1024, got a second value
FILE:13: route_limits: limits of route 'nope': path: expected one that begins with /, got 'nope'
FILE:13: route_limits: limits of route 'nope': idle: expected seconds up to 86400, got 'x'
FILE:13: route_limits: limits of route 'nope': setting: expected total, got 'totl'
FILE:16: breaker_codes: expected a whole number from 400 to 599, got 'abc'
FILE:16: breaker_codes: expected a whole number from 400 to 599, got '9999'
FILE:18: \\x1b[31m: unknown key, expected one that kv-router config schema lists
"""


def test_every_wrong_value_is_found_also_within_workers_and_whatever_its_shape(tmp_path: Path) -> None:
    code, lines, _ = check(tmp_path / "f.yaml", WRONG)
    assert (code, sorted(lines)) == (1, sorted(SAID.splitlines()))


def test_all_contradictions_are_found(tmp_path: Path) -> None:
    text = (
        "processes: 2\nworkers: [http://a:1, http://a:1/, http://b:1, http://b:1, 'http://c:1,bind=true']\n"
        "route_limits: ['/workers,total=1', '/ready,total=1']"
    )
    code, lines, _ = check(tmp_path / "f.yaml", text)
    assert (code, [line.split(":")[1] for line in lines]) == (
        1,
        [" bind=true", " worker http", " worker http", " --route-limit /workers", " --route-limit /ready"],
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("workers: [http://a:1, http://a:1/]", "FILE: worker http://a:1 given 2 times"),
        ("route_limits: ['/workers,total=1']", "FILE: --route-limit /workers: there is no route"),
        ("workers: http://a:1", "FILE:1: workers: expected a list"),
        ("port: [1]", "FILE:1: port: expected a whole number from 0 to 65535, got a list"),
        ("config: other.yaml", "FILE:1: config: unknown key"),
    ],
)
def test_what_contradicts_itself_is_a_mistake_too(tmp_path: Path, text: str, expected: str) -> None:
    code, lines, _ = check(tmp_path / "f.yaml", text)
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "kv-router: f.yaml: cannot be read: No such file or directory\n"),
        ("- 1", "kv-router: f.yaml: expected keys and values, such as 'port: 8000', got a list\n"),
        ("a: b: c", "kv-router: f.yaml:1: not YAML: mapping values are not allowed here\n"),
        (
            "version: 2\nfuture: 1",
            "kv-router: f.yaml:1: version: expected 1, the version that this router reads\n",
        ),
    ],
)
def test_what_is_no_configuration_at_all_is_exit_code_2(
    tmp_path: Path, text: str | None, expected: str
) -> None:
    assert check(tmp_path / "f.yaml", text) == (2, [], expected)


ALONE = "workers: [http://a:1]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tls_key: k.pem", "--tls-key: expected --tls-cert, too"),
        ("tls_client_ca: ca.pem", "--tls-client-ca: expected --tls-cert, too"),
        ("port: 9002\nepp_port: 9002", "--epp-port 9002: expected another port than --port"),
        (
            "route_limits: ['/v1/embeddings,total=1', '/v1/embeddings,idle=1']",
            "--route-limit /v1/embeddings given 2 times: expected each route once, with all its limits",
        ),
        (
            "discover: kubernetes",
            "--discover kubernetes: expected --kubernetes-selector, such as app=vllm, too",
        ),
        (
            "protect_metrics: on",
            "--protect-metrics on: expected --api-keys or --api-key, too, since no client has a key",
        ),
    ],
)
def test_what_cannot_be_together_is_said_by_the_check_as_by_serve(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "f.yaml"
    elsewhere = said.startswith(("--discover", "--protect"))
    code, lines, _ = check(path, ALONE + text)
    assert (code, [line.removesuffix(f": {NEEDED}") for line in lines]) == (not elsewhere, [f"FILE: {said}"])
    assert lines[0].endswith(NEEDED) is elsewhere
    with pytest.raises(ConfigError) as caught:
        load({"config": str(path)}, {})
    assert caught.value.message == said


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("tls_key: k.pem", {"KV_ROUTER_TLS_CERT": "c.pem"}),
        ("discover: kubernetes", {"KV_ROUTER_KUBERNETES_SELECTOR": "app"}),
        ("protect_metrics: on", {"KV_ROUTER_API_KEY": "a-key-of-sixteen"}),
        ("port: 9002\nepp_port: 9003", {"KV_ROUTER_PORT": "9003"}),
        ("port: 9002", {"KV_ROUTER_CONFIG": "nowhere.yaml"}),
    ],
)
def test_what_a_variable_gives_completes_the_file(
    tmp_path: Path, text: str, variable: dict[str, str]
) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    assert checked(str(path), variable) == Found()


def test_what_is_given_wrongly_is_not_said_to_be_missing(tmp_path: Path) -> None:
    code, lines, _ = check(tmp_path / "f.yaml", "discover: kubernetes\nkubernetes_selector: ',,'")
    assert (code, lines) == (
        1,
        [
            "FILE:2: kubernetes_selector: expected a label selector such as app=vllm,tier in (a,b), got ',,'",
        ],
    )
