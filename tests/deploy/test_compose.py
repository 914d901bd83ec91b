"""The compose file: by the compose specification, and what it names is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import compose_spec
import pytest
import yaml

from router.layers import load
from tests.deploy.dockerfile import only, stages, words
from workers.cli import cli as kv_workers

ROOT = Path(__file__).parents[2]
PATH = ROOT / "deploy" / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(PATH.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_it_is_what_the_specification_says() -> None:
    compose_spec.PyCompose.from_yaml(PATH.read_text()).validate()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("read_only:", "read_onyl:"), ("service_healthy", "healthy"), ("8000:8000", "80000:8000")],
)
def test_the_specification_is_strict(right: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"services\.router"):
        compose_spec.PyCompose.from_yaml(PATH.read_text().replace(right, wrong))


def test_services_and_volumes_that_are_named_are_there() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", ())) <= set(SERVICES)
        network = service.get("network_mode", "service:router").partition(":")[2]
        assert network in SERVICES
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert (PATH.parent / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


def test_the_router_asks_the_workers_that_are_started() -> None:
    config = load({}, SERVICES["router"]["environment"])
    command = SERVICES["workers"]["command"]
    typed = dict(zip(command[1::2], command[2::2], strict=True))
    first = int(typed["--port"])
    assert [worker.url for worker in config.workers] == [
        f"http://workers:{first + at}" for at in range(int(typed["--count"]))
    ]
    assert SERVICES["workers"]["entrypoint"] == ["kv-workers"]
    fleet = kv_workers.commands["fleet"]
    fleet.make_context("fleet", list(command[1:]))


def test_every_port_that_is_open_to_this_machine_is_open_to_nobody_else() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_the_image_is_the_one_that_is_built_here_and_its_check_is_ours() -> None:
    final = stages(ROOT / "Dockerfile")[-1]
    assert SERVICES["router"]["build"]["context"] == ".."
    check = words(only(final, "HEALTHCHECK").partition("CMD ")[2])
    assert SERVICES["workers"]["healthcheck"]["test"][1 : 1 + len(check)] == check
