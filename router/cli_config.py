"""`kv-router config`: what can be known of a configuration file without starting a router."""

from __future__ import annotations

import os
import sys

import click

from router.errors import ConfigError
from router.printable import printable

EXIT_MISTAKES = 1


def config_commands() -> click.Group:
    """Return the commands."""
    check = click.Command(
        "check",
        params=[click.Argument(["file"])],
        callback=_check,
        help="Check a --config FILE: a line for each mistake, and exit code 1 if there is any; 2 if it "
        "cannot be read as settings at all.",
    )
    schema = click.Command(
        "schema", callback=_schema, help="Print the JSON schema of the --config file, for editors."
    )
    return click.Group("config", commands=[check, schema], help="Check --config files, and their schema.")


def _check(file: str) -> None:
    from router.checking import checked  # noqa: PLC0415 - what it imports takes long, --help must not

    found = checked(file, os.environ)
    said = [printable(" ".join(line.split())) for line in (*found.mistakes, *found.needed)]
    _print("\n".join(said) or f"{printable(file)}: no mistakes")
    if found.mistakes:
        sys.exit(EXIT_MISTAKES)


def _schema() -> None:
    from router.schema import schema_text  # noqa: PLC0415 - see above

    _print(schema_text().rstrip())


def _print(text: str) -> None:
    try:
        click.echo(text)
    except OSError as error:
        raise ConfigError(f"cannot write: {error.strerror}") from None
