"""The completions path, from the client's body to the end of its answer.

Hot: the body is read once and parsed once, the answer's bytes pass unparsed. Whatever happens, the client
gets an answer or a connection that is visibly broken, and nobody else notices.
"""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import TYPE_CHECKING

from router.api.answers import send_error
from router.api.exchange import CLIENT_CLOSED_REQUEST, Exchange
from router.api.refusal import Refused
from router.errors import RouterError, Stopping, UpstreamFailed
from router.observe.story import Story
from router.proxy.body import body_of
from router.proxy.deadline import Deadline
from router.proxy.disconnect import ClientGone, ClientWatch
from router.proxy.relay import interrupt

if TYPE_CHECKING:
    from router.api.admission import Admission
    from router.api.dispatch import Dispatcher
    from router.api.keys import Client
    from router.api.planner import Planner
    from router.api.wishes import Wishes
    from router.observe.metrics import Metrics
    from router.observe.story import Observer
    from router.prompts.request import Kind
    from router.proxy.body import BodyBudget
    from router.proxy.cycle import Cycle
    from router.proxy.limits import Limits

_SHOWN_BYTES = 64
_log = logging.getLogger(__name__)


class Completions:
    """Serves the routes that carry a prompt."""

    def __init__(
        self,
        planner: Planner,
        dispatcher: Dispatcher,
        admission: Admission,
        metrics: Metrics,
        wishes: Wishes,
        *,
        max_body_bytes: int,
        bodies: BodyBudget,
        limits: Limits,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        self._planner = planner
        self._dispatcher = dispatcher
        self._admission = admission
        self._metrics = metrics
        self._wishes = wishes
        self._max_body_bytes = max_body_bytes
        self._bodies = bodies
        self._limits = limits
        self._observers = observers
        self._loop = asyncio.get_running_loop()

    def attach(self, observer: Observer) -> None:
        """Tell one more observer of the requests that begin from now on."""
        self._observers = (*self._observers, observer)

    def detach(self, observer: Observer) -> None:
        """Tell it of no more."""
        self._observers = tuple(other for other in self._observers if other != observer)

    async def serve(self, kind: Kind, cycle: Cycle, client: Client | None = None) -> None:
        """Answer one request, of a `client` where that is known; raises nothing."""
        exchange = self._exchange(kind, cycle)
        deadline = self._deadline(cycle) if self._limits.timed else None
        held = 0
        try:
            body = await body_of(cycle, self._max_body_bytes, self._bodies)
            held = len(body)
            with ClientWatch(cycle):
                wish = self._wishes.of(cycle.headers)
                check = self._admission.check_noting(exchange, cycle.headers)
                plan = await self._planner.plan(kind, body, wish, check)
                exchange.model = plan.route.model
                if exchange.story is not None:
                    exchange.story.plan_made(plan)
                if client is not None:
                    client.take_prompt(plan.prompt.count, perf_counter)
                await self._dispatcher.dispatch(plan, exchange)
        except ClientGone:
            exchange.status = CLIENT_CLOSED_REQUEST
        except Refused as refused:
            self._pass_on(exchange, refused)
        except RouterError as error:
            self._end(exchange, error)
        except asyncio.CancelledError:  # by the deadline, or by the server, which has waited long enough
            late = deadline.error if deadline is not None else None
            self._end(exchange, late or Stopping("the router is stopping", retry_after=1))
        except Exception:  # noqa: BLE001 - whatever it is, no traceback may reach a client
            _log.exception("request %s failed in the router", _shown(exchange.id))
            self._refuse(exchange, RouterError("the router failed to handle this request"))
        finally:
            if deadline is not None:
                deadline.close()
            self._bodies.give_back(held)
            self._metrics.answered(
                kind.value, exchange.status, perf_counter() - exchange.began, exchange.model
            )
            if exchange.story is not None:
                exchange.story.end()

    async def refuse(self, kind: Kind, cycle: Cycle, error: RouterError) -> None:
        """Answer one request that must not be served; raises nothing."""
        exchange = self._exchange(kind, cycle)
        self._refuse(exchange, error)
        self._metrics.answered(kind.value, exchange.status, perf_counter() - exchange.began)
        if exchange.story is not None:
            exchange.story.end()

    def unread(self, status: int) -> None:
        """Count what was refused before there was a request to tell of."""
        self._metrics.unread(status)

    def _exchange(self, kind: Kind, cycle: Cycle) -> Exchange:
        exchange = Exchange(cycle)
        if self._observers:
            exchange.story = Story(exchange, kind, self._observers)
        return exchange

    def _pass_on(self, exchange: Exchange, refused: Refused) -> None:
        try:
            refused.pass_on(exchange)
        except UpstreamFailed as failure:  # it holds what must not be in a header
            self._refuse(exchange, failure)

    def _refuse(self, exchange: Exchange, error: RouterError) -> None:
        self._failed(exchange, error)
        exchange.status = error.status
        if not exchange.cycle.response_started:
            send_error(exchange.cycle, error, exchange.id)

    def _end(self, exchange: Exchange, error: RouterError) -> None:
        """Answer with an error, or end an answer that will not be whole; waits for no client."""
        response, cycle = exchange.response, exchange.cycle
        if not cycle.response_started or response is None:
            self._refuse(exchange, error)
            return
        exchange.status = response.status
        self._failed(exchange, error)
        if cycle.flow.write_paused:
            cycle.cut()
        else:
            interrupt(response, cycle, error)

    def _failed(self, exchange: Exchange, error: RouterError) -> None:
        self._metrics.failed(error)
        if exchange.story is not None:
            exchange.story.failed(error)

    def _deadline(self, cycle: Cycle) -> Deadline | None:
        limits = self._limits.on(cycle.target) if self._limits.routes else self._limits
        return Deadline(cycle, limits.total_seconds, self._loop) if limits.total_seconds else None


def _shown(request_id: bytes) -> str:
    return request_id[:_SHOWN_BYTES].decode("latin-1")
