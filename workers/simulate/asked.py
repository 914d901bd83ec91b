"""From the options of `simulate` to the runs they ask for; what cannot be is a UsageError of one line."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from router.config import OPTIONS
from router.core.cost import POLICIES
from router.derived import weights_from
from router.errors import ConfigError
from router.options.policies import WEIGHTS
from router.setting import Given
from workers.engine.timing import PROFILES
from workers.simulate.columns import by_policy, by_trouble
from workers.simulate.recipe import Run
from workers.simulate.setup import Setup
from workers.tiers import TierError, tiers_from
from workers.traces.mooncake import BLOCK_TOKENS
from workers.traces.options import check_source, refuse, source_from
from workers.traces.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from router.core.cost import Weights

DEFAULT_PAGE = 16
_LAG = re.compile(r"events-lag=([0-9]+(?:\.[0-9]+)?)s?")
_TIER = re.compile(r"[0-9.]+x")


_OWN_OF_TABLE = (
    "workload",
    "qps",
    "seconds",
    "speed",
    "router",
    "replicas",
    "share",
    "restart_router",
    "lose_caches",
    "page_size",
)


def check_given(options: dict[str, Any], given: frozenset[str]) -> None:
    """Raise UsageError for options, of those on the command line, that would have no effect."""
    if options["table"]:
        refuse(_OWN_OF_TABLE, given, "{} has no effect on --table, which has its own")
        if len(options["weights"]) > 1:
            raise click.UsageError("--table compares policies: give --weights once")
    else:
        check_source(options, given, instead=", or --table")
    if options["share"] is not None and options["replicas"] == 1:
        raise click.UsageError("--share has no effect with one router: see --replicas")


def setup_from(options: dict[str, Any]) -> Setup:
    """Return the fleet that is asked for, under the default policy."""
    traced = options["trace"] is not None and not options["table"]
    return Setup(
        workers=options["workers"],
        replicas=options["replicas"],
        share=options["share"],
        restarts=options["restart_router"],
        losses=options["lose_caches"],
        kv_tokens=options["kv_tokens"],
        page_size=options["page_size"] or (BLOCK_TOKENS if traced else DEFAULT_PAGE),
        tiers=_tiers(options),
        profile=PROFILES[options["profile"]],
        max_running=options["max_running"],
        chunk_tokens=options["chunk_tokens"],
        seed=options["seed"],
    )


def _tiers(options: dict[str, Any]) -> Any:
    text: str | None = options["host_tier"]
    if text is None:
        return None
    try:
        return tiers_from(
            f"host={text}" if _TIER.fullmatch(text) else text,
            write_through=1,
            host_gbps=options["host_gbps"],
            storage_gbps=options["storage_gbps"],
        )
    except TierError as error:
        raise click.UsageError(f"--host-tier: {error}") from error


def policies_from(text: str) -> list[str]:
    """Return the policies of a list, `all` being every one there is."""
    names = list(POLICIES) if text == "all" else text.split(",")
    for name in names:
        if name not in POLICIES:
            raise click.UsageError(f"--policies: {name!r} is none of all, {', '.join(POLICIES)}")
    return list(dict.fromkeys(names))


def routers_from(text: str, setup: Setup) -> Iterator[Setup]:
    """Yield a variant of the fleet for every kind of router in a list."""
    kinds = text.split(",")
    for kind in kinds:
        variant = kind if len(kinds) > 1 else ""
        late = _LAG.fullmatch(kind)
        if late is not None:
            yield replace(setup, lag=float(late[1]), variant=variant)
        elif kind in {"events", "approximate"}:
            yield replace(setup, hears=kind == "events", variant=variant)
        else:
            wanted = "events, approximate or events-lag=SECONDS"
            raise click.UsageError(f"--router: expected {wanted}, not {kind!r}")


def weighed(texts: Sequence[str], setup: Setup) -> Iterator[Setup]:
    """Yield a variant of the fleet for every set of weights."""
    for text in texts or ("",):
        variant = ", ".join(filter(None, (setup.variant, text if len(texts) > 1 else "")))
        yield replace(setup, weights=_weights(text), variant=variant)


def _weights(text: str) -> Weights:
    """Return weights; each is read as the setting of `kv-router serve` that it has there."""
    values = {}
    for part in filter(None, text.split(",")):
        name, equals, number = part.partition("=")
        if name not in WEIGHTS or not equals:
            raise click.UsageError(f"--weights: expected NAME=N of {', '.join(WEIGHTS)}, not {part!r}")
        try:
            values[name] = OPTIONS[WEIGHTS[name]].read(Given(f"--weights: {name}", number))
        except ConfigError as error:
            raise click.UsageError(error.message) from None
    return weights_from(values)


def runs_from(options: dict[str, Any]) -> list[Run]:
    """Return the runs of one workload."""
    source, setup = source_from(options), setup_from(options)
    name = source.workload or (source.trace.stem if source.trace else "")
    return [
        Run(name, source, variant.under(policy))
        for kind in routers_from(options["router"], setup)
        for variant in weighed(options["weights"], kind)
        for policy in policies_from(options["policies"])
    ]


def table_from(options: dict[str, Any]) -> tuple[list[Run], list[Run]]:
    """Return the runs of the preset: policies by columns, and troubles."""
    setup = next(weighed(options["weights"], setup_from(options)))
    path = options["trace"]
    trace = None if path is None else Source(path, spread=options["spread"], requests=options["requests"])
    settings: dict[str, Any] = {"seed": options["seed"], "requests": options["requests"]}
    plain = by_policy(policies_from(options["policies"]), setup, trace, **settings)
    return plain, by_trouble(setup, trace, **settings)
