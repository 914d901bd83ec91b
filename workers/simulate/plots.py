"""Plots of results: PNG files, and one HTML page that needs nothing beside itself."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

import click

from workers.simulate.report import listing, name_of

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise click.UsageError("--plots needs matplotlib: pip install 'kv-router[plots]'") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from workers.simulate.results import Result

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:15px/1.4 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}}
pre{{overflow:auto;background:#f4f4f4;padding:1em}}img{{max-width:100%}}</style>
<h1>{title}</h1>
{parts}</html>
"""


def prepare(directory: Path) -> None:
    """Make the directory, so that a long simulation is not for nothing; raises UsageError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "index.html").touch()
    except OSError as error:
        raise click.UsageError(f"--plots: {error.filename}: {error.strerror}") from error


def draw(results: Sequence[Result], directory: Path) -> None:
    """Write `<workload>-ttft.png`, `-cached.png` and `-load.png` for every workload, and `index.html`.

    Where there are policies by themselves, and one policy in several situations, each has its own plots.
    """
    parts = []
    for workload, here in _groups(results):
        parts.append(f"<h2>{escape(workload)}</h2><pre>{escape(listing(here))}</pre>")
        for kind, figure in _figures(workload, here):
            image = _png(figure)
            (directory / f"{_file_name(workload)}-{kind}.png").write_bytes(image)
            parts.append(f'<img alt="{kind}" src="data:image/png;base64,{b64encode(image).decode()}">')
    page = _PAGE.format(title="Policies compared", parts="\n".join(parts))
    (directory / "index.html").write_text(page, encoding="utf-8")


def _groups(results: Sequence[Result]) -> Iterator[tuple[str, list[Result]]]:
    for workload in dict.fromkeys(result.workload for result in results):
        here = [result for result in results if result.workload == workload]
        plain = [result for result in here if not result.variant]
        varied = [result for result in here if result.variant]
        if plain:
            yield workload, plain
        if varied:
            yield f"{workload}, varied" if plain else workload, varied


def _file_name(workload: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in workload)


def _png(figure: Figure) -> bytes:
    file = BytesIO()
    figure.savefig(file, format="png", dpi=90, metadata={"Software": None})
    return file.getvalue()


def _figures(workload: str, results: Sequence[Result]) -> list[tuple[str, Figure]]:
    return [
        ("ttft", _one(lambda axes: _curves(axes, workload, results), legend=True)),
        ("cached", _one(lambda axes: _bars(axes, workload, results))),
        ("load", _loads(workload, results)),
    ]


def _one(draws: Callable[[Axes], None], *, legend: bool = False) -> Figure:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    draws(figure.subplots())
    if legend:
        figure.legend(loc="outside right center", fontsize="small")
    return figure


def _curves(axes: Axes, workload: str, results: Sequence[Result]) -> None:
    """Draw which share of the requests has had its first token by when."""
    for number, result in enumerate(results):
        shares = [point / max(1, len(result.curve) - 1) for point in range(len(result.curve))]
        axes.plot(result.curve, shares, label=name_of(result), linestyle=("-", "--", ":")[number // 10 % 3])
    axes.set(xscale="log", xlabel="time to first token, s", ylabel="share of requests", title=workload)
    axes.grid(alpha=0.3)


def _bars(axes: Axes, workload: str, results: Sequence[Result]) -> None:
    """Draw the share of prompt tokens that the workers had cached."""
    names = [name_of(result) for result in results]
    axes.barh(names, [result.hit_share for result in results])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="prompt tokens found in a cache, share", title=workload)


def _loads(workload: str, results: Sequence[Result]) -> Figure:
    """Draw the requests on each worker over time, a panel for every run."""
    figure = Figure(figsize=(8, 0.8 + 1.3 * len(results)), layout="constrained")
    panels = figure.subplots(len(results), sharex=True, sharey=True, squeeze=False)
    for panel, result in zip(panels[:, 0], results, strict=True):
        times = [sample.at for sample in result.samples]
        panel.plot(times, [sample.requests for sample in result.samples], linewidth=0.8)
        panel.set_title(name_of(result), fontsize="small", loc="left")
    panels[-1, 0].set_xlabel("time, s")
    figure.suptitle(f"{workload}: requests on each worker")
    return figure
