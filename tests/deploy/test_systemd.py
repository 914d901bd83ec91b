"""The systemd unit: as systemd itself reads it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from router.config import ALL_OPTIONS
from router.layers import load
from tests.deploy.programs import program
from tests.e2e.test_reload import configured, logged

if TYPE_CHECKING:
    from subprocess import CompletedProcess

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "kv-router.service"
# As `systemd-analyze security` has it: 10 is no protection at all.
MOST_EXPOSED = 2.0
# By its names. What is not here cannot be: the router serves the network, from where it is installed.
SHUT_OFF = {
    "CapabilityBoundingSet=~CAP_SYS_ADMIN",
    "LockPersonality=",
    "NoNewPrivileges=",
    "PrivateDevices=",
    "ProtectClock=",
    "ProtectControlGroups=",
    "ProtectHome=",
    "ProtectHostname=",
    "ProtectKernelLogs=",
    "ProtectKernelModules=",
    "ProtectKernelTunables=",
    "ProtectProc=",
    "ProtectSystem=",
    "RestrictAddressFamilies=~…",
    "RestrictNamespaces=~user",
    "RestrictRealtime=",
    "RestrictSUIDSGID=",
    "SystemCallArchitectures=",
    "SystemCallFilter=~@mount",
    "UMask=",
    "User=/DynamicUser=",
}


def analysed(directory: Path, text: str, *command: str) -> CompletedProcess[str]:
    """Have systemd read a unit whose program is there."""
    unit = directory / UNIT.name
    unit.write_text(text.replace("/opt/kv-router/bin/kv-router", sys.executable))
    return subprocess.run(
        [program("systemd-analyze"), *command, str(unit)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"SYSTEMD_LOG_LEVEL": "warning"},
    )


def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    ended = analysed(tmp_path, UNIT.read_text(), "verify", "--man=no")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_it_would_say_so_if_there_were(tmp_path: Path) -> None:
    ended = analysed(tmp_path, UNIT.read_text().replace("ProtectClock", "ProtectClokc"), "verify", "--man=no")
    assert "Unknown key" in ended.stderr


def test_it_is_well_shut_off(tmp_path: Path) -> None:
    ended = analysed(tmp_path, UNIT.read_text(), "security", "--offline=yes", "--no-pager")
    found = re.search(r"Overall exposure level for kv-router\.service: ([0-9.]+)", ended.stdout)
    assert found is not None, ended.stderr
    assert float(found[1]) <= MOST_EXPOSED


def test_what_shuts_it_off_is_all_there(tmp_path: Path) -> None:
    """The sum above has room for one to be lost. Some come with DynamicUser, which not everybody can use."""
    text = UNIT.read_text().replace("DynamicUser=yes", "User=kv-router")
    ended = analysed(tmp_path, text, "security", "--offline=yes", "--json=short")
    found = {each["name"] for each in json.loads(ended.stdout) if each["set"]}
    assert found >= SHUT_OFF, SHUT_OFF - found


def test_it_is_started_anew_without_end_whatever_ended_it() -> None:
    unit, _, service = UNIT.read_text().partition("[Service]")
    assert "StartLimitIntervalSec=0" in unit.splitlines()
    assert re.findall(r"^Restart=(.*)$", service, re.MULTILINE) == ["always"]


async def test_a_reload_reads_the_settings_again_and_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    (line,) = re.findall(r"^ExecReload=(.*)$", UNIT.read_text(), re.MULTILINE)
    async with configured(path, "workers: [http://127.0.0.1:1]") as (front, client):
        path.write_text("workers: [http://127.0.0.1:1]\nqueue_size: 7\n")
        for word in ("$MAINPID", "${MAINPID}"):
            line = line.replace(word, str(front.process.pid))
        command = await asyncio.create_subprocess_exec(*line.split())
        assert await command.wait() == 0
        await logged(front, "settings changed: --queue-size")
        assert (await client.get("/health")).status_code == 200


def test_what_it_shows_of_credentials_is_a_unit_too(tmp_path: Path) -> None:
    shown = re.sub(r"^#(?=[A-Z]\w+=)", "", UNIT.read_text(), flags=re.MULTILINE)
    ended = analysed(tmp_path, shown, "verify", "--man=no")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    handed = set(re.findall(r"^LoadCredential=([\w.]+):", shown, re.MULTILINE))
    used = dict(re.findall(r"(KV_ROUTER_\w+)=%d/([\w.]+)", shown))
    assert set(used.values()) == handed
    assert set(used) < {option.variable for option in ALL_OPTIONS}


def test_the_page_hands_over_what_the_unit_does() -> None:
    page = (UNIT.parents[2] / "docs" / "containers.md").read_text()
    lines = re.findall(r"^LoadCredential=.*$", page, re.MULTILINE)
    assert lines
    assert all(f"#{line}" in UNIT.read_text().splitlines() for line in lines)


def test_requests_under_way_have_their_time(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text("workers: [http://127.0.0.1:1]")
    config = load({"config": str(path)}, {})
    found = re.search(r"^TimeoutStopSec=([0-9]+)$", UNIT.read_text(), re.MULTILINE)
    assert found is not None
    assert int(found[1]) > config.leave_seconds + config.grace_seconds


@pytest.mark.parametrize("name", ["ExecStart", "ExecStartPre"])
def test_the_commands_are_those_of_the_router(name: str) -> None:
    (line,) = re.findall(rf"^{name}=\S+ (.*)$", UNIT.read_text(), re.MULTILINE)
    ended = subprocess.run(
        [sys.executable, "-m", "router", *line.split()], capture_output=True, text=True, check=False
    )
    assert ended.stderr == (
        "kv-router: /etc/kv-router/router.yaml: cannot be read: No such file or directory\n"
    )
