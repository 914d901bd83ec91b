"""`kv-router record` and `kv-router replay` on the command line; what they do is imported when they run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from router.config import CONFIG_FILE, OPTIONS
from router.layers import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from router.setting import Option

# What matters where nothing is served.
_RECORDED = (
    "workers",
    "record_max_bytes",
    "index_max_blocks",
    "probe_seconds",
    "connect_seconds",
    "replay_seconds",
    "worker_api_key",
    "worker_ca",
    "log_level",
    "log_format",
)


def record_commands(declared: Callable[[Option], click.Option]) -> Iterable[click.Command]:
    """Return both; `declared` makes an option of a setting."""
    yield click.Command(
        "record",
        params=[
            click.Option(["--out", "record"], metavar="DIR", required=True, help="Directory for the record."),
            *(declared(OPTIONS[name]) for name in _RECORDED),
            declared(CONFIG_FILE),
        ],
        callback=_record,
        context_settings={"max_content_width": 110},
        help="Record the event streams of workers, without serving, until it is stopped.",
    )
    yield click.Command(
        "replay",
        params=[
            click.Argument(["directory"]),
            click.Option(
                ["--policy", "policies"],
                multiple=True,
                help="Judge this policy, too, on the recorded traffic; repeat for several.",
            ),
            click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
        ],
        callback=_replay,
        help="Re-run a record and compare; exit code 1 when anything differs, 2 when it cannot be read.",
    )


def _record(**typed: str | tuple[str, ...] | None) -> None:
    config = load({name: value for name, value in typed.items() if value}, os.environ)
    from router.records.alone import run  # noqa: PLC0415 - it imports the service

    run(config)


def _replay(directory: str, policies: tuple[str, ...], *, as_json: bool) -> None:
    from router.records.replay import run  # noqa: PLC0415 - it imports the service

    sys.exit(run(directory, policies, as_json=as_json))
