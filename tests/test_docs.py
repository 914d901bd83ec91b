"""What the documents say can be done: commands are run as written, and what they name is there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from router.config import ALL_OPTIONS, OPTIONS
from tests.deploy.programs import program
from tests.deploy.values import CHART, DEPLOY
from workers.cli import cli as kv_workers

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
FLAGS = {option.flag for option in ALL_OPTIONS}
# What a document's commands may take on a machine that has much else to do.
MOST_SECONDS = 110


def blocks(path: Path, kind: str) -> list[str]:
    """Return the fenced blocks of a kind, such as `sh run`."""
    return re.findall(rf"^```{kind}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


RUN = [path for path in DOCS if blocks(path, "sh run")]


def names(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", RUN, ids=names)
def test_the_commands_of_a_document_run_as_written(path: Path, tmp_path: Path) -> None:
    script = "\n".join(["set -euo pipefail", "trap 'kill $(jobs -p) && wait' EXIT", *blocks(path, "sh run")])
    (tmp_path / "script").write_text(script)
    apart = [program("unshare"), "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    process = subprocess.Popen(
        [*apart, sys.executable, "-m", "tests.namespace", program("bash"), "-m", "script"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    try:
        said, _ = process.communicate(timeout=MOST_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    logs = "".join(each.read_text()[-1000:] for each in tmp_path.glob("*.log"))
    assert process.returncode == 0, said[-3000:] + logs


def environment() -> dict[str, str]:
    """Return this process's environment, with the project's commands first and none of its settings."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("KV_ROUTER_")}
    paths = (str(Path(sys.executable).parent), kept.get("PATH", os.defpath))
    return kept | {"PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("path", DOCS, ids=names)
def test_flags_in_commands_are_there(path: Path) -> None:
    for block in blocks(path, "sh run") + blocks(path, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            command = line.split()
            given = {word.partition("=")[0] for word in command if word.startswith("--")}
            if command[:2] == ["kv-router", "serve"]:
                assert given <= FLAGS
            if command[:1] == ["kv-workers"]:
                assert given <= {opt for each in kv_workers.commands[command[1]].params for opt in each.opts}


# Those of metrics and alerts are held against the table of metrics instead (tests/monitoring).
@pytest.mark.parametrize(
    "path", [path for path in DOCS if path.stem not in {"alerts", "metrics", "records"}], ids=names
)
def test_flags_and_settings_in_the_text_are_there(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    ours = re.findall(r"^\|[^|]*\| (.*) \|$", text, re.MULTILINE) if path.stem == "migrating" else [text]
    for part in ours:
        named = set(re.findall(r"`(--[a-z][a-z-]+)", part))
        foreign = {"--enable-prompt-tokens-details", "--enable-cache-report", "--page-size"}
        foreign |= {"--data-parallel-size", "--dp-size", "--build-arg"}
        assert named - foreign <= FLAGS
        settings = set(re.findall(r"`([a-z]+_[a-z_]+)[:`]", part)) - {
            "cached_tokens",
            "cache_salt",
            "in_place",
        }
        known = set(OPTIONS) | {"least_tokens", "least_requests", "power_of_two", "round_robin"}
        assert {name for name in settings if not name.startswith("kv_router_")} <= known


@pytest.mark.parametrize("path", DOCS, ids=names)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        assert link.startswith("https://") or (path.parent / link).exists(), link


def test_what_is_said_of_the_deployment_is_there() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for option in re.findall(r"--set ([a-zA-Z]+)", text) + re.findall(r"`([a-zA-Z]+)\.enabled`", text):
        assert option in values
    for path in re.findall(r"deploy/(?:helm|kubernetes)[\w/-]*", text):
        assert (DEPLOY.parent / path).exists(), path
