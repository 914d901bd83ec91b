"""One process of a router, as its parent knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from router.fleet.effects import EFFECT
from router.observe.figures import Figures

if TYPE_CHECKING:
    import asyncio
    import signal
    from collections.abc import Callable

    from router.share.exchange import Exchange
    from router.share.line import Line

_FIGURES = msgspec.msgpack.Decoder(Figures)


class Member:
    """One process; `answer` does what it asks for. `signal` sends it one. `reloads` it knows of."""

    def __init__(
        self, exchange: Exchange, index: int, sender: str, send: Callable[[signal.Signals], None]
    ) -> None:
        self.index = index
        self.sender = sender
        self.signal = send
        self.line: Line | None = None
        self.joined = self.serves = False
        self.asked: asyncio.Future[msgspec.Raw] | None = None
        self.missed = 0
        self.reloads = exchange.reloads
        self._exchange = exchange

    async def answer(self, what: str, body: msgspec.Raw) -> Any:
        """See `Line`."""
        exchange = self._exchange
        match what:
            case "join":
                return await exchange.join(self)
            case "change" | "tell":
                act = exchange.change if what == "change" else exchange.follow
                return await act(self, EFFECT.decode(body))
            case "figures":
                return await exchange.figures(self, _FIGURES.decode(body))
            case "rows":
                answers = await exchange.gather(self, what)
                return {index: raw for index, raw in answers.items() if raw is not None}
            case "sync":
                return exchange.sync(self, begins=msgspec.msgpack.decode(body, type=bool))
            case "good":
                exchange.good.update([msgspec.msgpack.decode(body, type=tuple[str, bytes])])
            case "serves":
                exchange.serves(self)
            case _:
                raise ValueError(what)
        return None
