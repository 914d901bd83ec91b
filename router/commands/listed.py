"""The commands besides serve, as click sees them."""

from __future__ import annotations

import sys

import click

from router.variables import KEY, URL

_URL = click.Option(
    ["--url"],
    envvar=URL,
    default="http://127.0.0.1:8000",
    show_default=True,
    metavar="URL",
    help="The router to ask; also KV_ROUTER_URL.",
)
_KEY = click.Option(
    ["--key"],
    envvar=KEY,
    metavar="KEY",
    help="A client's key, where the router asks for one; better given as KV_ROUTER_KEY than as a flag that a "
    "process list shows.",
)
_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON instead of a table.")


def operator_commands() -> list[click.Command]:
    """Return them."""
    return [_workers(), _explain(), _top(), _doctor()]


def _workers() -> click.Command:
    return click.Command(
        "workers",
        params=[_URL, _KEY, _JSON],
        callback=_run_workers,
        help="Show the workers of a router: state, load, blocks, hit share.",
    )


def _explain() -> click.Command:
    return click.Command(
        "explain",
        params=[click.Argument(["file"], metavar="FILE"), _URL, _KEY, _JSON],
        callback=_run_explain,
        help="Show where a request would go, and why. FILE holds its body (JSON, as for /v1/completions, "
        "/v1/chat/completions or /generate); - is standard input. No worker computes anything.",
    )


def _top() -> click.Command:
    once = click.Option(["--once"], is_flag=True, help="Print one picture, and end.")
    return click.Command(
        "top",
        params=[once, _URL, _KEY],
        callback=_run_top,
        help="Watch the fleet live. On a terminal q or Ctrl-C ends it; a pipe gets one picture a second.",
    )


def _doctor() -> click.Command:
    return click.Command(
        "doctor",
        params=[
            click.Argument(["workers"], nargs=-1, metavar="[WORKER]..."),
            _URL,
            _KEY,
            click.Option(
                ["--worker-key"],
                envvar="KV_ROUTER_WORKER_API_KEY",
                metavar="KEY",
                help="The workers' own key; also KV_ROUTER_WORKER_API_KEY.",
            ),
            click.Option(
                ["--tokenizer"],
                envvar="KV_ROUTER_TOKENIZER",
                metavar="PATH",
                help="As for serve; else each worker's own path, where it can be read here.",
            ),
            click.Option(
                ["--wait", "seconds"],
                type=click.FloatRange(0.1, 3600),
                default=5.0,
                show_default=True,
                metavar="SECONDS",
                help="Longest wait for each answer, and for the events of a request.",
            ),
            click.Option(
                ["--quiet-workers", "passive"],
                is_flag=True,
                help="Send no request to workers; what only a request shows is then not checked.",
            ),
            _JSON,
        ],
        callback=_run_doctor,
        help="Check a fleet from outside, and say how to cure what is wrong (exit code 1). Without a WORKER "
        "the router at --url is checked, and each of its workers; with WORKERs, given as to serve --worker, "
        "those alone. Every rank of a worker gets two small requests of one output token.",
    )


def _run_workers(url: str, key: str | None, *, as_json: bool) -> None:
    from router.commands import workers  # noqa: PLC0415 - --help must not wait for it
    from router.commands.access import Access  # noqa: PLC0415 - likewise

    workers.run(Access(url, key), as_json=as_json)


def _run_explain(file: str, url: str, key: str | None, *, as_json: bool) -> None:
    from router.commands import explain  # noqa: PLC0415 - --help must not wait for it
    from router.commands.access import Access  # noqa: PLC0415 - likewise

    explain.run(file, Access(url, key), as_json=as_json)


def _run_top(url: str, key: str | None, *, once: bool) -> None:
    from router.commands import top  # noqa: PLC0415 - --help must not wait for it
    from router.commands.access import Access  # noqa: PLC0415 - likewise

    top.run(Access(url, key), once=once)


def _run_doctor(
    workers: tuple[str, ...],
    url: str,
    key: str | None,
    worker_key: str | None,
    tokenizer: str | None,
    seconds: float,
    *,
    passive: bool,
    as_json: bool,
) -> None:
    from router.commands import doctor  # noqa: PLC0415 - --help must not wait for it
    from router.commands.access import Access  # noqa: PLC0415 - likewise
    from router.commands.checkup import Means  # noqa: PLC0415 - likewise

    means = Means(worker_key, tokenizer, seconds, passive=passive)
    well = doctor.run(workers, Access(url, key), means, as_json=as_json)
    sys.exit(0 if well else 1)
