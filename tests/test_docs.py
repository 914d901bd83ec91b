"""What the documents say can be done: commands are run as written, and what they name is there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from router.cli import commands
from router.config import OPTIONS
from tests.deploy.programs import program
from tests.deploy.values import CHART, DEPLOY
from workers.cli import cli as kv_workers

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = [README, *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS: dict[str, click.Group] = {"kv-router": commands(), "kv-workers": kv_workers}
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


def flags(command: click.Command) -> set[str]:
    """Return the flags of a command, and of those that it has."""
    context = click.Context(command)
    names = command.list_commands(context) if isinstance(command, click.Group) else []
    below = [command.get_command(context, name) for name in names] if isinstance(command, click.Group) else []
    own = {flag for each in command.params if isinstance(each, click.Option) for flag in each.opts}
    return own.union(*(flags(each) for each in below if each is not None))


FLAGS = {name: flags(program) for name, program in PROGRAMS.items()}


def asked(words: list[str]) -> click.Command | None:
    """Return the command of ours that a shell's words begin with. A command that is not there is KeyError."""
    command: click.Command | None = PROGRAMS.get(words[0]) if words else None
    for word in words[1:]:
        if not isinstance(command, click.Group) or word.startswith("-"):
            break
        command = command.get_command(click.Context(command), word)
        if command is None:
            raise KeyError(" ".join(words))
    return command


@pytest.mark.parametrize("path", DOCS, ids=names)
def test_flags_in_commands_are_there(path: Path) -> None:
    for block in blocks(path, "sh run") + blocks(path, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.partition("#")[0].split("|"):
                words = part.split()
                given = {word.partition("=")[0] for word in words if word.startswith("--")}
                command = asked(words)
                assert command is None or given <= {*flags(command), "--help"}, part


# Those of metrics and alerts are held against the table of metrics instead (tests/monitoring); compatibility
# speaks in the engines' words.
OTHERS = {"alerts", "compatibility", "metrics"}


@pytest.mark.parametrize("path", [path for path in DOCS if path.stem not in OTHERS], ids=names)
def test_flags_and_settings_in_the_text_are_there(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    ours = re.findall(r"^\|[^|]*\| (.*) \|$", text, re.MULTILINE) if path.stem == "migrating" else [text]
    for part in ours:
        named = set(re.findall(r"`(?:kv-router [a-z ]*)?(--[a-z][a-z-]+)", part))
        foreign = {"--enable-prompt-tokens-details", "--enable-cache-report", "--page-size"}
        foreign |= {"--data-parallel-size", "--dp-size", "--build-arg"}
        assert named - foreign <= set().union(*FLAGS.values())


SETTING = re.compile(r"`([a-z]+_[a-z_]+): ?[^`]*`|`([a-z]+_[a-z_]+)`")


@pytest.mark.parametrize("name", ["kubernetes", "tuning", "first-router", "options"])
def test_settings_of_a_file_in_the_text_are_there(name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text()
    named = {first or second for first, second in SETTING.findall(text)}
    policies = {"least_tokens", "least_requests", "power_of_two", "round_robin"}
    others = {"body_mode", "response_header_mode", "cached_tokens"}  # Envoy's, and an engine's
    assert {each for each in named if not each.startswith("kv_router_")} <= {*OPTIONS, *policies, *others}


@pytest.mark.parametrize("path", DOCS, ids=names)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        if not link.startswith("https://"):
            file, _, anchor = link.partition("#")
            target = path.parent / file if file else path
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def anchors(path: Path) -> set[str]:
    """Return the names of a page's headings in links."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_is_said_of_the_deployment_is_there() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for option in re.findall(r"--set ([a-zA-Z]+)", text) + re.findall(r"`([a-zA-Z]+)\.enabled`", text):
        assert option in values
    for path in re.findall(r"deploy/(?:helm|kubernetes)[\w/-]*", text):
        assert (DEPLOY.parent / path).exists(), path
