"""The command line: what was typed becomes a `Config`, and what is wrong becomes one line and exit code 2.

Values are read in `router.layers`, not by click, so that a flag, a variable and a file say the same about the
same mistake. Nothing of the service is imported before there is something to serve.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from router import __version__
from router.cli_config import config_commands
from router.cli_health import health_command
from router.commands.listed import operator_commands
from router.config import ALL_OPTIONS
from router.errors import CommandFailed, ConfigError
from router.layers import load
from router.printable import printable
from router.records.commands import record_commands
from router.variables import from_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.setting import Option

EXIT_FAILED = 1
EXIT_WRONG_USAGE = 2
EPP_PORT = "9002"  # as the inference extension has it
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
# An argument too many can be a key, which click would print.
_CONTEXT = {"max_content_width": 110, "allow_extra_args": True}
EPILOG = (
    "Every flag is also an environment variable (--probe-seconds is KV_ROUTER_PROBE_SECONDS) and a key of "
    "the --config file (probe_seconds; workers for --worker). Flags beat the environment, which beats the "
    "file."
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and leave the process: exit code 2 for anything given wrongly, 1 for what fails."""
    try:
        _check_authorities(os.environ.get("SSL_CERT_FILE", ""))
        sys.exit(commands().main(arguments, "kv-router", standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(EXIT_WRONG_USAGE)
    except click.ClickException as error:
        refuse(error.format_message())
    except ConfigError as error:
        refuse(error.message)
    except CommandFailed as error:
        refuse(error.message, EXIT_FAILED)
    except click.Abort:
        sys.exit(EXIT_INTERRUPTED)


def _check_authorities(path: str) -> None:
    """Raise ConfigError for a pipe, say, which OpenSSL would read, in whatever connects, without an end."""
    if path != os.devnull and Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
        raise ConfigError(f"SSL_CERT_FILE {path}: expected a regular file")


def commands() -> click.Group:
    """Return the commands, with an option for every setting."""
    serve = click.Command(
        "serve",
        params=[_declared(option) for option in ALL_OPTIONS],
        callback=_serve,
        context_settings=_CONTEXT,
        help="Route requests to the worker where the least work remains.",
        epilog=EPILOG,
    )
    epp = click.Command(
        "epp",
        params=serve.params,
        callback=_pick,
        context_settings=_CONTEXT,
        help=f"Pick endpoints for Envoy; the same as serve with --epp-port {EPP_PORT}.",
        epilog=EPILOG,
    )
    group = click.Group(
        "kv-router",
        commands=[
            serve,
            epp,
            config_commands(),
            health_command(),
            *operator_commands(),
            *record_commands(_declared),
        ],
        help="KV-event router for SGLang and vLLM workers.",
    )
    return click.version_option(__version__, prog_name="kv-router", message="%(prog)s %(version)s")(group)


def _pick(**typed: str | tuple[str, ...] | None) -> None:
    if typed["epp_port"] is None and "epp_port" not in from_environment(os.environ):
        typed["epp_port"] = EPP_PORT
    _serve(**typed)


def _serve(**typed: str | tuple[str, ...] | None) -> None:
    if click.get_current_context().args:
        raise ConfigError(
            "expected options only, got another argument: each key, and each URL, needs its flag"
        )
    flags = {name: value for name, value in typed.items() if value is not None and value != ()}
    config = load(flags, os.environ)
    # Trace context is W3C's here, and read by the router itself; a propagator that others need, and that is
    # not installed here, would end the import of FastAPI.
    os.environ["OTEL_PROPAGATORS"] = "none"
    # The service's libraries take long to import, --help must not; nor does a parent of processes need them.
    if config.processes > 1:
        from router.share.processes import run as run_processes  # noqa: PLC0415 - see above

        sys.exit(run_processes(config, flags))
    from router.service import run  # noqa: PLC0415 - see above

    run(config, flags)


def _declared(option: Option) -> click.Option:
    setting = option.setting
    default = f"; default {option.shown_default}" if option.default is not None else ""
    return click.Option(
        [option.flag, option.name],
        metavar=setting.unit.upper() or setting.kind.placeholder,
        multiple=setting.repeated,
        help=f"{setting.help}.  [{option.limits}{default}]",
    )


def refuse(message: str, code: int = EXIT_WRONG_USAGE) -> NoReturn:
    """Say in one line what is wrong, and leave."""
    logging.shutdown()  # what was logged before stands above it
    sys.stderr.write(f"kv-router: {printable(' '.join(message.split()))}\n")
    sys.exit(code)
