"""`kv-workers`, `python -m workers`: one stand-in or many, until SIGTERM or SIGINT.

When all are up, one JSON object goes to standard output. A wrong value is one line and exit code 2, a port
that is taken one line and exit code 1.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
import msgspec
import uvloop

from workers.assembly import consecutive, spec_from
from workers.fleet import Fleet
from workers.options import EXIT_INTERRUPTED, FAULT_HELP, MOST_WORKERS, given, worker_options
from workers.tokenizer import TokenizerError

if TYPE_CHECKING:
    from types import FrameType

    from workers.spec import WorkerSpec

_ROOMS = {"load": "workers.load.cli", "simulate": "workers.simulate.cli"}
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Commands(click.Group):
    """Those that are rooms of their own are imported when they are asked for: a stand-in needs no router."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted([*super().list_commands(ctx), *_ROOMS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name."""
        if cmd_name not in _ROOMS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(_ROOMS[cmd_name]), cmd_name)
        return command


@click.group(cls=_Commands, context_settings={"show_default": True, "max_content_width": 110})
def cli() -> None:
    """Engine stand-ins: SGLang and vLLM workers without a GPU."""


@cli.command(epilog=FAULT_HELP)
@worker_options
def serve(**options: Any) -> None:
    """Run one worker."""
    _run(consecutive(spec_from(options, given()), 1))


@cli.command(epilog=FAULT_HELP)
@click.option("--count", type=click.IntRange(1, MOST_WORKERS), required=True, help="Number of workers.")
@worker_options
def fleet(count: int, **options: Any) -> None:
    """Run N workers in one process; given ports are those of the first, the others follow."""
    _run(consecutive(spec_from(options, given()), count))


@cli.command()
@click.option("--keep", is_flag=True, show_default=False, help="Leave everything up and print the URLs.")
def demo(*, keep: bool) -> None:
    """Show the router at work on four stand-ins: two policies, then a weight sync under traffic."""
    from workers.demo.processes import DemoError  # noqa: PLC0415 - the stand-in alone needs no router
    from workers.demo.run import demo as run_demo  # noqa: PLC0415 - as above

    try:
        held = uvloop.run(run_demo(keep=keep))
    except DemoError as error:
        raise click.ClickException(str(error)) from error
    sys.exit(0 if held else 1)


def _run(specs: list[WorkerSpec]) -> None:
    try:
        uvloop.run(_until_stopped(specs))
    except TokenizerError as error:
        raise click.UsageError(f"--{error}") from error
    except OSError as error:
        raise click.ClickException(str(error)) from error
    for number in _SIGNALS:  # what is left is the interpreter's end, which would drop the handlers
        signal.signal(number, signal.SIG_IGN)


async def _until_stopped(specs: list[WorkerSpec]) -> None:
    """Run until the first signal; those that follow, even once the loop is closed, change nothing."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stopped.set)

    for number in _SIGNALS:  # a handler of the loop's own would end with the loop
        signal.signal(number, stop)
    async with Fleet(specs) as running:
        ready = {"ready": True, "workers": [worker.describe() for worker in running.workers]}
        sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
        sys.stdout.flush()
        await stopped.wait()


def main() -> None:
    """Run the command line; errors are one line each."""
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        click.echo(f"kv-workers: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(EXIT_INTERRUPTED)
