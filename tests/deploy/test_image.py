"""The image: no Docker engine runs here, so that its commands run in a bare directory instead."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from tests.deploy.dockerfile import only, stages, words
from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TLS = ROOT / "tests" / "fixtures" / "tls"
BUILD, FINAL = stages(ROOT / "Dockerfile")
# Beside what the routing itself needs (numpy, msgspec, xxhash, pyzmq, tokenizers and the like, 14 in all).
MOST_REQUIREMENTS = 14
MOST_START_SECONDS = 1.5


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the commands of the first stage, with /opt elsewhere; return what the second one copies.

    Packages come through pip's cache where it has them, which the image has no use for.
    """
    opt, source = tmp_path_factory.mktemp("opt"), tmp_path_factory.mktemp("src")
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environ |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environ.pop("PYTHONPATH", None)
    environ |= dict(rest.split("=") for name, rest in BUILD if name == "ARG")
    for name, rest in BUILD:
        if name == "COPY":
            *wanted, to = rest.split()
            for each in wanted:
                for found in sorted(ROOT.glob(each)):
                    copy(found, source / to)
        if name == "RUN":
            command = rest.replace("/opt/", f"{opt}/")
            ended = subprocess.run(
                command, shell=True, cwd=source, env=environ, capture_output=True, text=True, check=False
            )
            assert ended.returncode == 0, f"{command}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}"
    return opt / "kv-router" / "bin"


def copy(wanted: Path, to: Path) -> None:
    """Copy a file into a directory, or a directory's contents, as COPY does."""
    if wanted.is_dir():
        shutil.copytree(wanted, to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        to.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, to)


def run(image: Path, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command as in a container."""
    return subprocess.run(
        [str(image / command[0]), *command[1:]],
        env={"PATH": str(image), **environ},
        cwd=image,
        capture_output=True,
        text=True,
        check=False,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(image: Path, **environ: str) -> Iterator[dict[str, str]]:
    """Run the container's process; give its environment once it is healthy, and stop it as Docker does."""
    environ = {"KV_ROUTER_HOST": "127.0.0.1", "KV_ROUTER_PORT": str(free_port()), **environ}
    environ |= {"KV_ROUTER_WORKER": "http://127.0.0.1:1", "PATH": str(image)}
    command = [str(image / words(only(FINAL, "ENTRYPOINT"))[0]), *words(only(FINAL, "CMD"))]
    process = subprocess.Popen(command, env=environ, cwd=image, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + DEADLINE_SECONDS
        while run(image, *check(), **environ).returncode:
            assert time.monotonic() < end, "it is not healthy in time"
        yield environ
        process.send_signal(getattr(signal, only(FINAL, "STOPSIGNAL")))
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        process.kill()
        process.communicate()


def check() -> list[str]:
    return words(only(FINAL, "HEALTHCHECK").partition("CMD ")[2])


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    ended = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")


def test_it_runs_as_nobody_in_particular_and_gets_its_signals_itself() -> None:
    assert only(FINAL, "USER") == "10001:10001"
    assert words(only(FINAL, "ENTRYPOINT")) == ["kv-router"]
    assert [rest for name, rest in FINAL if name == "RUN"] == [
        "useradd --system --uid 10001 --user-group --create-home kv-router"
    ]


def test_all_that_is_copied_is_let_through_by_dockerignore() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[0] == "*"
    for name, rest in BUILD:
        for each in rest.split()[:-1] if name == "COPY" else []:
            assert any(f"{each}/".startswith(f"{line[1:]}/") for line in lines if line.startswith("!")), each


def pins(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ ]+)", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", ["runtime", "build"])
def test_its_versions_are_those_that_are_tested(name: str) -> None:
    tested = pins(ROOT / "requirements.lock")
    pinned = pins(ROOT / "deploy" / "docker" / f"{name}.lock")
    assert pinned.items() <= tested.items(), "run make lock"


def test_the_image_with_an_endpoint_picker_has_no_other_versions() -> None:
    pinned = pins(ROOT / "deploy" / "docker" / "epp.lock")
    assert pins(ROOT / "deploy" / "docker" / "runtime.lock").items() <= pinned.items(), "run make lock"
    assert "xds-protos" in pinned


def test_the_router_itself_requires_few_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [Requirement(text).name for text in project["dependencies"]]
    assert len(required) <= MOST_REQUIREMENTS
    assert set(required) <= set(pins(ROOT / "deploy" / "docker" / "runtime.lock")), "run make lock"


@pytest.mark.timeout(400)
def test_the_wheel_serves_in_an_environment_with_nothing_else(image: Path) -> None:
    helped = run(image, "kv-router", "serve", "--help")
    assert helped.returncode == 0
    assert "--worker" in helped.stdout
    listed = run(
        image,
        "python",
        "-c",
        "from importlib import metadata as m; print(*(d.name for d in m.distributions()))",
    )
    names = {re.sub(r"[-_.]+", "-", name).lower() for name in listed.stdout.split()}
    assert "kv-router" in names
    assert names - {"kv-router"} <= set(pins(ROOT / "deploy" / "docker" / "runtime.lock"))


@pytest.mark.timeout(400)
def test_help_imports_nothing_of_the_service(image: Path) -> None:
    code = "import sys, router.cli; router.cli.commands(); print(*sys.modules)"
    loaded = set(run(image, "python", "-c", code).stdout.split())
    assert "router.config" in loaded
    assert not loaded & {"fastapi", "numpy", "uvicorn", "zmq", "tokenizers", "pydantic", "asyncio"}


@pytest.mark.timeout(400)
def test_a_container_is_healthy_and_ends_when_it_is_told_to(image: Path) -> None:
    with serving(image) as environ:
        answered = run(image, *check(), **environ)
        assert answered.stdout == f"http://127.0.0.1:{environ['KV_ROUTER_PORT']}: healthy\n"
    assert run(image, *check(), **environ).returncode == 1


@pytest.mark.timeout(400)
def test_health_is_found_behind_tls_and_where_clients_need_certificates(image: Path) -> None:
    files = {
        "KV_ROUTER_TLS_CERT": str(TLS / "localhost.pem"),
        "KV_ROUTER_TLS_KEY": str(TLS / "localhost.key"),
    }
    for more in ({}, {"KV_ROUTER_TLS_CLIENT_CA": str(TLS / "other.pem")}):
        with serving(image, **files, **more) as environ:
            assert run(image, *check(), **environ).stdout.startswith("https://127.0.0.1:")


@pytest.mark.timeout(400)
def test_it_starts_within_a_second_and_a_half_of_work(image: Path) -> None:
    """Of processor time, the best of three: how busy this machine is should not matter."""
    spent = []
    for _ in range(3):
        process = subprocess.Popen(
            [image / "kv-router", "serve", "--port", "0", "--worker", "http://127.0.0.1:1"],
            env={"PATH": str(image)},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        assert any("listening on" in line for line in process.stderr)
        process.terminate()
        process.stderr.read()
        usage = os.wait4(process.pid, 0)[2]
        process.returncode = 0
        spent.append(usage.ru_utime + usage.ru_stime)
    assert min(spent) < MOST_START_SECONDS, spent
