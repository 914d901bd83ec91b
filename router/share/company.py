"""Whom this process works with: the others of its router, other routers, or nobody.

A process that is alone tells nothing and pays nothing. Otherwise all that differs is put in its place here,
so that the rest of the router need not ask.
"""

from __future__ import annotations

import secrets
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING

from router.core.accounts import Accounts, own_accounts
from router.errors import ConfigError
from router.fleet.crew import Alone, Crew
from router.observe.rows import ShareRow
from router.observe.sight import OwnSight, Sight
from router.share.names import name_of
from router.share.sharing import Sharing

if TYPE_CHECKING:
    from router.config import Config
    from router.fleet.fleet import Fleet
    from router.fleet.membership import Membership
    from router.observe.exposition import Exposition
    from router.observe.rows import WorkerRow
    from router.share.address import Address
    from router.share.channel import Channel
    from router.share.team import Team


def check_share(config: Config) -> None:
    """Raise ConfigError where --share is given and what it needs is not installed."""
    if config.share is not None and find_spec("redis") is None:
        raise ConfigError("--share: expected the package redis: pip install 'kv-router[share]'")


def router_name() -> str:
    """Return a name for a router that no other has."""
    return f"{socket.gethostname()[:40]}-{secrets.token_hex(4)}"


class Company:
    """One process's. `accounts` are those that its requests are entered in, `index` is its place."""

    def __init__(self, config: Config, team: Team | None, fleet: Fleet) -> None:
        self.index = 0 if team is None else team.seat.index
        self.sharing: Sharing | None = None
        self._team = team
        self._fleet = fleet
        self._channel: Channel | None = None
        if team is not None or config.share is not None:
            self.sharing = self._shared()
        if config.share is not None and self.sharing is not None:
            self._channel = self._connected(config.share, config.share_channel, self.sharing)

    @property
    def accounts(self) -> Accounts:
        """How requests are entered."""
        return own_accounts() if self.sharing is None else self.sharing.accounts

    def crew(self, membership: Membership) -> Crew:
        """Return who carries out admin calls."""
        return (
            Alone(self._fleet, membership) if self._team is None else self._team.crew(self._fleet, membership)
        )

    def sight(self, exposition: Exposition) -> Sight:
        """Return who shows what there is to see."""
        if self._team is None:
            return OwnSight(exposition, self.share)
        return self._team.sight(exposition, self.share)

    def with_others(self, row: WorkerRow) -> WorkerRow:
        """Return the row of a worker with what other routers have there."""
        if self._channel is not None and self.sharing is not None:
            names = [(name_of(row.url), rank.rank) for rank in row.ranks]
            peers, own = self.sharing.peers, self.sharing.telling.router
            row.peers_tokens, row.peers_requests = peers.load_of(names, own)
        return row

    def share(self) -> ShareRow | None:
        """Return what there is to see of --share, None without it."""
        if self._channel is None or self.sharing is None:
            return None
        channel, peers = self._channel, self.sharing.peers
        others = peers.routers() - {self.sharing.telling.router}
        traffic = channel.traffic
        return ShareRow(
            channel=channel.name,
            connected=channel.connected,
            why=channel.why,
            routers=len(others),
            sent=traffic.sent,
            sent_bytes=traffic.sent_bytes,
            heard=traffic.heard,
            heard_bytes=traffic.heard_bytes,
            dropped=traffic.dropped + self.sharing.telling.dropped,
            lost=peers.lost,
            undecodable=self.sharing.undecodable,
        )

    def changed(self) -> None:
        """Take note that a worker has come, gone, or become another."""
        if self.sharing is not None:
            self.sharing.changed()

    async def start(self) -> None:
        """Take part; needs a running loop, and all that was asked for above."""
        if self._channel is not None:
            self._channel.start()
        if self.sharing is not None:
            self.sharing.start()
        if self._team is not None:
            await self._team.start()

    async def close(self) -> None:
        """Leave."""
        if self.sharing is not None:
            self.sharing.close()
        if self._channel is not None:
            await self._channel.close()
        if self._team is not None:
            self._team.close()

    def _shared(self) -> Sharing:
        """Return what tells of this process, to its siblings if it has any."""
        if self._team is None:
            router = router_name()
            return Sharing(self._fleet.ranks, router, f"{router}-0")
        seat = self._team.seat
        sharing = Sharing(self._fleet.ranks, seat.router, seat.sender)
        self._team.share(sharing)
        return sharing

    def _connected(self, address: Address, name: str, sharing: Sharing) -> Channel:
        from router.share.channel import Channel  # noqa: PLC0415 - what it needs may not be installed

        channel = Channel(address, name, lambda payload: sharing.hear(payload, same_clock=False))
        sharing.ways.append(channel.send)
        return channel
