"""The file that results are written to: whole, or as it was before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from pathlib import Path


def check_writable(path: Path | None) -> None:
    """See to it that results can be written, so that a long run is not for nothing. Raises UsageError."""
    try:
        if path is not None:
            path.touch()
    except OSError as error:
        raise click.UsageError(f"--json: {error.filename}: {error.strerror}") from error


def write(path: Path | None, results: object) -> None:
    """Write what there is as JSON, all or nothing. Raises ClickException."""
    if path is None:
        return
    written = path.with_name(path.name + ".part") if path.is_file() else path
    try:
        written.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
        if written is not path:
            written.replace(path)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
