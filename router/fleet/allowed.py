"""Where a worker that is added at run time may be: addresses within the operator's ranges, and no others.

A name is looked up once, every address it has must be allowed, and the connections go to the one that was
checked: what the name says later does not matter. The same holds for the addresses of its events, also for
those that the worker itself reports.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from router.engines.endpoint import WILDCARDS, Endpoint
from router.errors import BadRequest, NotPermitted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.engines.description import Description, EventSource
    from router.fleet.spec import WorkerSpec

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_LOOKUP_SECONDS = 5.0


class Allowed:
    """The ranges; with none of them nothing is allowed."""

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        self._networks = tuple(networks)

    async def address(self, host: str, name: str) -> str:
        """Return the address to connect to for a host; `name` is the setting that has it, for the errors.

        Raises NotPermitted, and BadRequest for a name that has no address.
        """
        if not self._networks:
            raise NotPermitted(
                "workers can be added only within the ranges of --worker-allow: there are none"
            )
        found = await _addresses(host, name)
        for text in found:
            if not self._holds(text):
                ranges = ", ".join(map(str, self._networks))
                got = host if text == host else f"{text}, which {host} stands for"
                raise NotPermitted(f"{name}: expected an address in {ranges}, got {got}", param=name)
        return found[0]

    def _holds(self, text: str) -> bool:
        address: Address = ipaddress.ip_address(text)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


class Confined:
    """A worker that was added at run time: `address` is where it is, instead of where its name says."""

    def __init__(self, allowed: Allowed, host: str, address: str) -> None:
        self._allowed = allowed
        self._host = host
        self.address = address

    @classmethod
    async def at(cls, allowed: Allowed, spec: WorkerSpec) -> Confined:
        """Look up and check where the URL of a worker points to. Raises NotPermitted, BadRequest."""
        return cls(allowed, spec.host, await allowed.address(spec.host, "url"))

    async def spec(self, spec: WorkerSpec) -> WorkerSpec:
        """Return the settings with the addresses of events checked too. Raises NotPermitted, BadRequest."""
        kv, replay = spec.kv, spec.replay
        if kv is not None and not spec.bind:
            kv = await self._each(kv, "kv")
        if replay is not None:
            replay = await self._each(replay, "replay")
        return replace(spec, kv=kv, replay=replay)

    async def description(self, said: Description) -> Description:
        """Return what a worker says of itself without the event sources that it must not name."""
        sources, why = [], said.why_no_events
        for source in said.sources:
            try:
                sources.append(source and await self._source(source))
            except (NotPermitted, BadRequest) as error:
                sources.append(None)
                why = error.message
        loads = tuple([source and await self._load(source) for source in said.loads])
        return replace(said, sources=tuple(sources), why_no_events=why, loads=loads)

    async def _load(self, source: EventSource) -> EventSource | None:
        try:
            return await self._source(source)
        except (NotPermitted, BadRequest):
            return None

    async def _source(self, source: EventSource) -> EventSource:
        endpoint, replay = source.endpoint, source.replay
        if not source.bind:
            endpoint = await self._one(endpoint, "kv")
        if replay is not None:
            replay = await self._one(replay, "replay")
        return replace(source, endpoint=endpoint, replay=replay)

    async def _each(self, text: str, name: str) -> str:
        return "|".join([await self._one(part, name) for part in text.split("|")])

    async def _one(self, text: str, name: str) -> str:
        endpoint = Endpoint.parse(text)
        if not endpoint.host:
            raise NotPermitted(f"{name}: expected tcp://host:port, got {text!r:.200}", param=name)
        if endpoint.host in WILDCARDS:
            return text
        if endpoint.host == self._host:
            return str(replace(endpoint, host=self.address))
        return str(replace(endpoint, host=await self._allowed.address(endpoint.host, name)))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _addresses(host: str, name: str) -> list[str]:
    if _is_address(host):
        return [host]
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_LOOKUP_SECONDS):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        raise BadRequest(
            f"{name}: expected a host that has an address, got {host!r:.200}", param=name
        ) from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
