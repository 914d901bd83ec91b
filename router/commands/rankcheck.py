"""One rank of a worker: its events, and what a request shows of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zmq

from router.commands.ink import plural
from router.commands.trial import Listener, Sent, replayed, send_twice, stored
from router.engines.detect import ENGINES
from router.engines.sglang import START_WITH as SGLANG_EVENTS
from router.engines.vllm import START_WITH as VLLM_EVENTS
from router.errors import UpstreamFailed, UpstreamTimeout

if TYPE_CHECKING:
    from router.commands.checkup import Means
    from router.commands.findings import Chart
    from router.commands.trial import Heard
    from router.engines.description import Description, EventSource
    from router.proxy.upstream import Upstream
    from router.streams.turns import Turns

_EVENTS = {"sglang": SGLANG_EVENTS, "vllm": VLLM_EVENTS}
_REPORT = {"sglang": "--enable-cache-report", "vllm": "--enable-prompt-tokens-details"}
_CLOCK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Tools:
    """What the ranks of a worker are checked with."""

    means: Means
    upstream: Upstream
    zmq: zmq.Context[zmq.Socket[bytes]]
    turns: Turns


class RankCheckup:
    """Checks one rank of a worker."""

    def __init__(self, chart: Chart, said: Description, rank: int, tools: Tools) -> None:
        self._chart = chart
        self._said = said
        self._headers = list(ENGINES[said.engine].rank_headers(rank, len(said.sources)))
        self._source = said.sources[rank]
        self._means = tools.means
        self._upstream = tools.upstream
        self._zmq = tools.zmq
        self._turns = tools.turns

    async def run(self, *, tried: bool) -> None:
        """Check it; `tried`: also with a request."""
        if self._source is None:
            why = self._said.why_no_events or "the worker does not say where its events are"
            self._chart.wrong(
                "events", why, f"{_EVENTS[self._said.engine]}, or give kv=tcp://host:port behind its URL"
            )
            if tried:
                await self._send()
            return
        try:
            listener = Listener(self._zmq, self._source, self._turns)
        except zmq.ZMQError as error:
            self._chart.wrong(
                "events", f"{self._source.endpoint}: {error.strerror}", "give the right kv=tcp://host:port"
            )
            return
        try:
            await self._listen(listener.heard, self._source, tried=tried)
        finally:
            listener.close()

    async def _listen(self, heard: Heard, source: EventSource, *, tried: bool) -> None:
        linked = await _within(heard.linked.wait(), self._means.seconds)
        if not linked:
            self._chart.wrong(
                "events",
                f"nothing publishes at {source.endpoint}",
                "start the engine with an endpoint that has * in it (else it connects: give bind=true), and "
                "open the port between here and there",
            )
        if not tried:
            if linked:
                self._chart.note(
                    "events", f"connected to {source.endpoint}, no request was sent", "run this again"
                )
            return
        sent = await self._send()
        if linked and sent is not None:
            await self._events(heard, source, sent)

    async def _send(self) -> Sent | None:
        """Send the requests, and look at what the answers count."""
        said, seconds = self._said, self._means.seconds
        try:
            sent = await send_twice(self._upstream, said.model, self._headers, said.block_size, seconds)
        except UpstreamTimeout:
            self._chart.wrong(
                "requests", f"no answer within {seconds:g} s", "see why the engine computes nothing"
            )
            return None
        except UpstreamFailed as failure:
            self._chart.wrong("requests", failure.message, "see the engine's log")
            return None
        counts = [usage.get("prompt_tokens") for usage in sent.usages]
        if counts[0] == len(sent.ids):
            self._chart.well("requests", f"{plural(len(sent.ids), 'token id')} sent are as many counted")
        else:
            self._chart.note("requests", f"{len(sent.ids)} token ids sent, {counts[0]} counted", "none known")
        self._cached(sent)
        return sent

    def _cached(self, sent: Sent) -> None:
        details = sent.usages[1].get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        flag = _REPORT[self._said.engine]
        if cached is None:
            self._chart.wrong(
                "cache report", "answers do not say how much was cached", f"start the engine with {flag}"
            )
        elif cached == 0:
            self._chart.wrong(
                "cache report", "of a prompt sent twice nothing was cached", "turn prefix caching on"
            )
        else:
            self._chart.well(
                "cache report", f"{cached} of {len(sent.ids)} tokens of a prompt sent twice were cached"
            )

    async def _events(self, heard: Heard, source: EventSource, sent: Sent) -> None:
        event = await stored(heard, sent.ids, self._means.seconds)
        if event is None:
            self._no_event(heard, source)
            return
        self._chart.well("events", f"{source.endpoint} tells of the blocks of a prompt")
        expected = self._said.block_size
        if expected is None or expected == event.block_size:
            self._chart.well("block size", plural(event.block_size, "token"))
        else:
            self._chart.wrong(
                "block size",
                f"events have blocks of {event.block_size} tokens, expected are {expected}",
                f"give block-size={event.block_size} behind the worker's URL, or leave it out",
            )
        if heard.undecodable:
            self._chart.wrong("decodable", _not_understood(heard), "update the router or the engine")
        self._clock(heard)
        await self._replay(heard, source)

    def _no_event(self, heard: Heard, source: EventSource) -> None:
        if heard.batches or heard.undecodable:
            what = f"{plural(len(heard.batches), 'batch')} came, none of them of the prompt that was sent"
            if heard.undecodable:
                what = f"{what}; not understood: {_not_understood(heard)}"
            self._chart.wrong("events", what, "see that the endpoint is this worker's and this rank's")
            return
        topic = f" with topic {source.topic!r}" if source.topic else ""
        self._chart.wrong(
            "events",
            f"connected to {source.endpoint}, nothing{topic} came of a request in {self._means.seconds:g} s",
            "see that the topic is the engine's, that prefix caching is on and the publisher lives; "
            + _EVENTS[self._said.engine],
        )

    def _clock(self, heard: Heard) -> None:
        """Compare clocks by the least delay of a batch: what came late does not count."""
        ahead = min((delay for _, _, delay in heard.batches), key=abs)
        if abs(ahead) <= _CLOCK_SECONDS:
            self._chart.well("clock", f"within {_CLOCK_SECONDS:g} s of this machine's")
        else:
            where = "behind" if ahead > 0 else "ahead of"
            self._chart.wrong(
                "clock", f"{abs(ahead):.1f} s {where} this machine's", "run NTP or chrony on both"
            )

    async def _replay(self, heard: Heard, source: EventSource) -> None:
        if source.replay is None:
            self._chart.note(
                "replay",
                "the engine keeps no history: a lost batch costs a whole view",
                """add "replay_endpoint": "tcp://*:5657" to its --kv-events-config""",
            )
            return
        start = heard.batches[0][0]
        first, failure = await replayed(self._zmq, source.replay, start, self._turns, self._means.seconds)
        cure = "open the replay port between here and there, and see that replay= is right"
        if failure:
            self._chart.wrong("replay", f"{source.replay}: {failure}", cure)
        elif first != start:
            got = "nothing" if first is None else f"batch {first}"
            more = "give the engine a larger buffer_steps"
            self._chart.wrong(
                "replay", f"{source.replay}: asked for batch {start} and on, {got} came first", more
            )
        else:
            self._chart.well("replay", f"{source.replay} has what was published")


async def _within(awaited: Any, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await awaited
    except TimeoutError:
        return False
    return True


def _not_understood(heard: Heard) -> str:
    found = plural(heard.undecodable, "batch or event")
    return f"{found} ({heard.why})" if heard.why else found
