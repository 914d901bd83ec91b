"""The completions path: raw ASGI, from the client's body to the chosen worker's answer and back.

Hot: the body is read once and parsed once, the answer's bytes pass unparsed. A request goes to another
worker only while not one byte of an answer has come. Whatever ends a request, its load leaves the ledger.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random, getrandbits
from time import perf_counter
from typing import TYPE_CHECKING

from router.api.answers import send_error
from router.core.decide import decide, predict
from router.core.ledger import Ledger
from router.errors import NoWorker, RouterError, UpstreamFailed, UpstreamTimeout
from router.proxy.body import read_body
from router.proxy.disconnect import ClientGone, ClientWatch
from router.proxy.headers import request_headers
from router.proxy.relay import Relayed, relay

if TYPE_CHECKING:
    from router.api.planner import Plan, Planner
    from router.core.cost import Candidate, Policy, Weights
    from router.core.rank import Rank
    from router.fleet.fleet import Fleet
    from router.observe.metrics import Metrics
    from router.prompts.request import Kind
    from router.proxy.asgi import Message, Receive, Send
    from router.proxy.edge import EdgeProtocol
    from router.proxy.headers import Field

_log = logging.getLogger(__name__)
_REQUEST_ID = b"x-request-id"
_OK = 200
_CLIENT_CLOSED_REQUEST = 499  # nginx's number for it; nobody is left to see it but the metrics


class Exchange:
    """One client's request while it is served."""

    __slots__ = ("edge", "headers", "id", "send", "started", "status", "target")

    def __init__(self, scope: Message, send: Send) -> None:
        self.headers: list[Field] = request_headers(scope["headers"])
        self.id = next((value for name, value in self.headers if name == _REQUEST_ID), b"")
        if not self.id:
            self.id = b"%032x" % getrandbits(128)
            self.headers.append((_REQUEST_ID, self.id))
        query: bytes = scope["query_string"]
        self.target: bytes = scope["raw_path"] + b"?" + query if query else scope["raw_path"]
        self.send = send
        self.edge: EdgeProtocol | None = None
        self.started = False
        self.status = _CLIENT_CLOSED_REQUEST


class Completions:
    """Serves the routes that carry a prompt."""

    def __init__(
        self,
        fleet: Fleet,
        planner: Planner,
        metrics: Metrics,
        *,
        policy: Policy,
        weights: Weights,
        retries: int,
        hold_seconds: float,
        max_body_bytes: int,
        rng: Random,
    ) -> None:
        self._fleet = fleet
        self._planner = planner
        self._metrics = metrics
        self._policy = policy
        self._weights = weights
        self._retries = retries
        self._hold_seconds = hold_seconds
        self._max_body_bytes = max_body_bytes
        self._rng = rng
        self._ledger = Ledger()
        self._clock = asyncio.get_running_loop().time

    async def serve(self, kind: Kind, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request; raises nothing but cancellation."""
        began = perf_counter()
        exchange = Exchange(scope, send)
        try:
            body = await read_body(receive, self._max_body_bytes)
            with ClientWatch(scope, receive) as watch:
                exchange.edge = watch.edge
                plan = await self._planner.plan(kind, body)
                await self._dispatch(plan, exchange, body, began)
        except ClientGone:
            exchange.status = _CLIENT_CLOSED_REQUEST
        except RouterError as error:
            await self._refuse(exchange, error)
        except Exception:  # noqa: BLE001 - whatever it is, no traceback may reach a client
            _log.exception("request %s failed in the router", exchange.id.decode("latin-1"))
            await self._refuse(exchange, RouterError("the router failed to handle this request"))
        finally:
            self._metrics.answered(kind.value, exchange.status, perf_counter() - began)

    async def _refuse(self, exchange: Exchange, error: RouterError) -> None:
        self._metrics.failed(error)
        exchange.status = error.status
        if not exchange.started:
            await send_error(exchange.send, error, exchange.id)

    async def _dispatch(self, plan: Plan, exchange: Exchange, body: bytes, began: float) -> None:
        """Send the request to the best worker, and to the next best while none has answered."""
        if not plan.route.ranks:
            plan.route = await self._fleet.wait_for(plan.request.model, self._hold_seconds)
        failure: UpstreamFailed | None = None
        tried: set[str] = set()
        while True:
            candidate = self._choose(plan, tried, failure)
            try:
                await self._attempt(plan, candidate, exchange, body, began)
            except UpstreamFailed as error:
                failure = error
            else:
                return
            tried.add(candidate.rank.worker)
            if not isinstance(failure, UpstreamTimeout):
                self._fleet.suspect(candidate.rank, failure.message)
            if len(tried) > self._retries:
                raise failure
            self._metrics.retries += 1

    def _choose(self, plan: Plan, tried: set[str], failure: UpstreamFailed | None) -> Candidate:
        began = perf_counter()
        route = self._fleet.route(plan.request.model) if tried else plan.route
        ranks = route.ranks
        if tried:
            ranks = [rank for rank in ranks if rank.worker not in tried]
        pinned = plan.request.routed_dp_rank
        if pinned is not None:
            ranks = [rank for rank in ranks if rank.rank == pinned]
        if not ranks:
            raise failure or NoWorker(
                f"no worker that serves {plan.route.model!r} can take a request now", retry_after=1
            )
        chosen = decide(self._fleet.index, ranks, plan.prompt, self._policy, self._weights, self._rng).chosen
        self._metrics.stages["choose"].observe(perf_counter() - began)
        self._metrics.chosen(self._policy.name, chosen.overlap_tokens, plan.prompt.count)
        return chosen

    async def _attempt(
        self, plan: Plan, candidate: Candidate, exchange: Exchange, body: bytes, began: float
    ) -> None:
        """Send the request to one worker and pass its answer on."""
        rank = candidate.rank
        ticket = self._ledger.open(rank.load, candidate.uncached_tokens)
        keys = predict(candidate, plan.prompt, self._clock())
        answered = False

        def on_first_byte() -> None:
            exchange.started = True
            ticket.first_token()
            self._metrics.first_byte.observe(perf_counter() - began)

        try:
            upstream = self._fleet.worker_of(rank).upstream
            headers = [*exchange.headers, *self._fleet.rank_headers(rank)]
            response = await upstream.request(b"POST", exchange.target, headers, body)
            relayed = await relay(
                response,
                exchange.send,
                extra=_answer_headers(candidate, exchange.id),
                on_first_byte=on_first_byte,
                edge=exchange.edge,
            )
            exchange.status = relayed.status
            answered = relayed.status == _OK
            self._learn(candidate, relayed)
        finally:
            ticket.close()
            if not answered:
                _withdraw(rank, keys)

    def _learn(self, candidate: Candidate, relayed: Relayed) -> None:
        """Hold what was expected of the engine's cache against what the engine says."""
        if relayed.failure is not None:
            self._metrics.failed(relayed.failure)
            return
        if relayed.status != _OK:
            return
        rank = candidate.rank
        if candidate.uncached_tokens > (rank.view.block_size or 0):
            self._fleet.stored(rank)
        cached = relayed.cached_tokens
        if cached is not None:
            self._metrics.reported(candidate.overlap_tokens, cached)


def _answer_headers(candidate: Candidate, request_id: bytes) -> tuple[Field, ...]:
    rank = candidate.rank
    return (
        (b"x-kv-router-worker", rank.worker.encode()),
        (b"x-kv-router-rank", b"%d" % rank.rank),
        (b"x-kv-router-overlap-tokens", b"%d" % candidate.overlap_tokens),
        (_REQUEST_ID, request_id),
    )


def _withdraw(rank: Rank, keys: list[int]) -> None:
    """Take back predictions that will not come true."""
    for key in keys:
        rank.view.predicted.settle(key)
