"""From the options of a command line to the specs of its workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import click

from workers.checks import SpecError
from workers.faults import FaultError, faults_from
from workers.givens import check_given, check_ports, option
from workers.publisher import PublisherConfig
from workers.spec import WorkerSpec
from workers.tiers import GIGABYTE, TierError, tiers_from

Port = TypeVar("Port", int, "int | None")


def spec_from(options: dict[str, Any], given: frozenset[str]) -> WorkerSpec:
    """Return the spec that the options describe; `given`: those on the command line.

    Raises UsageError for a value no worker can have, and for one that has no effect.
    """
    try:
        spec = WorkerSpec(**_settings(options))
    except SpecError as error:
        raise click.UsageError(f"{option(error.setting)} {error.wanted}") from error
    except TierError as error:
        raise click.UsageError(f"--tier: {error}") from error
    except FaultError as error:
        raise click.UsageError(f"--{error}") from error
    check_given(given, spec)
    return spec


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec, the publisher's and the tiers' put together."""
    settings = dict(options)
    events = PublisherConfig(
        host=options["host"],
        port=settings.pop("kv_port"),
        replay_port=_if(settings.pop("replay"), settings.pop("replay_port")),
        load_port=settings.pop("load_port"),
        topic=settings.pop("topic"),
        connect=settings.pop("kv_connect"),
        hwm=settings.pop("hwm"),
        buffer_steps=settings.pop("buffer_steps"),
        framing=settings.pop("replay_framing"),
    )
    settings["events"] = _if(settings["events"], events)
    settings["tiers"] = tiers_from(
        settings.pop("tier"),
        write_through=settings.pop("write_through"),
        host_gbps=settings.pop("host_gbps"),
        storage_gbps=settings.pop("storage_gbps"),
    )
    settings["faults"] = faults_from(settings["faults"])
    settings["transfer_bandwidth"] = settings.pop("transfer_gbps") * GIGABYTE
    return settings


def _if(condition: bool, value: Any) -> Any:
    return value if condition else None


def consecutive(spec: WorkerSpec, count: int) -> list[WorkerSpec]:
    """Return `count` specs on ports after each other; port 0 stays 0.

    Raises UsageError for ports that do not exist or that would be taken twice, and for several workers that
    would connect to one place.
    """
    if count > 1 and spec.events is not None and spec.events.connect is not None:
        raise click.UsageError("--kv-connect is one worker's: --count must be 1 with it")
    check_ports(spec, count)
    return [_moved(spec, number) for number in range(count)]


def _moved(spec: WorkerSpec, number: int) -> WorkerSpec:
    """Return the spec of the worker so many after the first."""
    events, ranks = spec.events, number * spec.dp
    return replace(
        spec,
        port=_after(spec.port, number),
        bootstrap_port=_after(spec.bootstrap_port, number),
        events=events
        and replace(
            events,
            port=_after(events.port, ranks),
            replay_port=_after(events.replay_port, ranks),
            load_port=_after(events.load_port, ranks),
        ),
    )


def _after(port: Port, offset: int) -> Port:
    return port + offset if port else port
