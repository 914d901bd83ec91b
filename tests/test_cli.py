from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from router import __version__
from router.config import ALL_OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

WORKER = "--worker=http://127.0.0.1:1"


def router(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: text for name, text in os.environ.items() if not name.startswith("KV_ROUTER_")}
    return subprocess.run(
        [sys.executable, *arguments],
        env=clean | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refusal(*arguments: str, **environ: str) -> str:
    """Return the one line on stderr that a wrong value is answered with."""
    ended = router("-m", "router", *arguments, **environ)
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    line, end = ended.stderr[:-1], ended.stderr[-1:]
    assert end == "\n"
    assert "\n" not in line, line
    assert "Usage" not in line
    assert line.startswith("kv-router: ")
    return line.removeprefix("kv-router: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port=http"], "--port: expected a whole number from 0 to 65535, got 'http'"),
        (["--port="], "--port: expected a whole number from 0 to 65535, got ''"),
        (["--host", "a\nb"], r"--host: expected a host name or address, got 'a\nb'"),
        (["--config=nowhere.yaml"], "nowhere.yaml: cannot be read: No such file or directory"),
        (["--config="], "--config: expected a path, got ''"),
        (["--port"], "Option '--port' requires an argument."),
        (
            ["--api-key", "key-of-one", "key-of-another"],
            "expected options only, got another argument: each key, and each URL, needs its flag",
        ),
        (
            [],
            (
                "no worker given: expected --worker URL, KV_ROUTER_WORKER, or workers in a --config file "
                "(or --worker-file, --discover, or --admin-key, to add them later)"
            ),
        ),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    assert refusal("serve", *arguments) == message


def test_an_unknown_flag_is_one_line_and_exit_code_2() -> None:
    assert refusal("serve", "--prot=1").startswith("No such option '--prot'.")


def test_a_wrong_variable_is_one_line_and_exit_code_2() -> None:
    message = refusal("serve", WORKER, KV_ROUTER_RETRIES="many")
    assert message == "KV_ROUTER_RETRIES: expected a whole number from 0 to 16, got 'many'"


def test_a_misspelt_variable_is_one_line_that_names_the_nearest() -> None:
    for more in ([], ["--processes=2"]):
        with socket.create_server(("127.0.0.1", 0)) as server:  # so that it ends
            port = server.getsockname()[1]
            environ = {"KV_ROUTER_POLCIY": "kv", "KV_ROUTER_KEY": "for-commands"}
            ended = router("-m", "router", "serve", WORKER, f"--port={port}", *more, **environ)
        warned, refused = ended.stderr.splitlines()
        assert warned.endswith(
            " WARNING KV_ROUTER_POLCIY: unknown variable, ignored; expected KV_ROUTER_POLICY"
        )
        assert str(port) in refused


def test_what_was_logged_before_a_refusal_stands_above_it() -> None:
    program = (
        "import logging\n"
        "from router.cli import refuse\n"
        "from router.observe.logs import configure\n"
        "configure('info')\n"
        "for number in range(3000):\n"
        "    logging.getLogger('router').info('line %d', number)\n"
        "refuse('no more')"
    )
    said = router("-c", program).stderr.splitlines()
    assert len(said) == 3001
    assert said[-1] == "kv-router: no more"


def test_what_kubernetes_sets_beside_a_service_is_no_setting_and_no_mistake() -> None:
    links: dict[str, str] = {}
    for name, port in (("KV_ROUTER", 8000), ("KV_ROUTER_EPP", 9002), ("KV_ROUTER_METRICS", 9)):
        url = f"tcp://10.0.0.1:{port}"
        links |= {f"{name}_SERVICE_HOST": "10.0.0.1", f"{name}_SERVICE_PORT": str(port)}
        links |= {f"{name}_SERVICE_PORT_HTTP": str(port), f"{name}_PORT": url, f"{name}_PORT_{port}_TCP": url}
        for part in ("PROTO", "PORT", "ADDR"):
            links[f"{name}_PORT_{port}_TCP_{part}"] = "tcp"
    program = (
        "import sys, router.cli\n"
        "sys.modules['grpc'] = None  # so that it ends, and says that it would pick\n"
        f"router.cli.main(['epp', '{WORKER}', '--port=0'])"
    )
    ended = router("-c", program, **links)
    assert ended.stderr == "kv-router: --epp-port: grpc is not installed: expected kv-router[epp]\n"


def test_a_wrong_file_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text("host: localhost\nport: high\n")
    message = refusal("serve", WORKER, "--config", str(path))
    assert message == f"{path}:2: port: expected a whole number from 0 to 65535, got 'high'"


def test_an_unknown_command_is_one_line_and_exit_code_2() -> None:
    assert refusal("sevre").startswith("No such command 'sevre'.")


def test_a_port_in_use_is_one_line_that_names_it_and_exit_code_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert str(port) in refusal("serve", WORKER, f"--port={port}")


def test_an_unreadable_tokenizer_is_one_line_that_names_it_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{")
    assert str(path) in refusal("serve", WORKER, "--port=0", f"--tokenizer={path}")


def test_a_policy_that_cannot_be_used_is_one_line_and_exit_code_2() -> None:
    assert "No module named 'nowhere'" in refusal("serve", WORKER, "--port=0", "--policy=nowhere:at_all")


def test_no_command_shows_the_commands() -> None:
    ended = router("-m", "router")
    assert ended.returncode == 2
    assert "serve" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_version_is_shown() -> None:
    assert router("-m", "router", "--version").stdout == f"kv-router {__version__}\n"


def test_help_shows_every_flag_with_its_limits_unit_and_default() -> None:
    ended = router("-m", "router", "serve", "--help", COLUMNS="110")
    assert (ended.returncode, ended.stderr) == (0, "")
    shown = re.sub(r"\s+", " ", ended.stdout)
    for option in ALL_OPTIONS:
        assert f"{option.flag} " in shown
        assert option.limits in shown
        if option.default is not None:
            assert f"; default {option.shown_default}]" in shown


def test_help_loads_none_of_the_service() -> None:
    program = (
        "import sys, router.cli\n"
        "try: router.cli.main(['serve', '--help'])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    loaded = set(router("-c", program).stderr.split())
    assert "router.cli" in loaded
    assert not loaded & {
        "fastapi",
        "starlette",
        "uvicorn",
        "zmq",
        "tokenizers",
        "prometheus_client",
        "asyncio",
    }
