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
from router.errors import RouterError, Stopping
from router.proxy.body import body_of
from router.proxy.disconnect import ClientGone, ClientWatch
from router.proxy.relay import interrupt

if TYPE_CHECKING:
    from router.api.dispatch import Dispatcher
    from router.api.planner import Planner
    from router.observe.metrics import Metrics
    from router.prompts.request import Kind
    from router.proxy.body import BodyBudget
    from router.proxy.cycle import Cycle

_log = logging.getLogger(__name__)


class Completions:
    """Serves the routes that carry a prompt."""

    def __init__(
        self,
        planner: Planner,
        dispatcher: Dispatcher,
        metrics: Metrics,
        *,
        max_body_bytes: int,
        bodies: BodyBudget,
    ) -> None:
        self._planner = planner
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes
        self._bodies = bodies

    async def serve(self, kind: Kind, cycle: Cycle) -> None:
        """Answer one request; raises nothing."""
        exchange = Exchange(cycle)
        held = 0
        try:
            body = await body_of(cycle, self._max_body_bytes, self._bodies)
            held = len(body)
            with ClientWatch(cycle):
                plan = await self._planner.plan(kind, body)
                await self._dispatcher.dispatch(plan, exchange)
        except ClientGone:
            exchange.status = CLIENT_CLOSED_REQUEST
        except RouterError as error:
            self._refuse(exchange, error)
        except asyncio.CancelledError:  # by the server, which has waited long enough
            self._stop(exchange)
        except Exception:  # noqa: BLE001 - whatever it is, no traceback may reach a client
            _log.exception("request %s failed in the router", exchange.id.decode("latin-1"))
            self._refuse(exchange, RouterError("the router failed to handle this request"))
        finally:
            self._bodies.give_back(held)
            self._metrics.answered(kind.value, exchange.status, perf_counter() - exchange.began)

    def _refuse(self, exchange: Exchange, error: RouterError) -> None:
        self._metrics.failed(error)
        exchange.status = error.status
        if not exchange.cycle.response_started:
            send_error(exchange.cycle, error, exchange.id)

    def _stop(self, exchange: Exchange) -> None:
        """End an answer that the router will not be there to finish; waits for no client."""
        error = Stopping("the router is stopping", retry_after=1)
        response, cycle = exchange.response, exchange.cycle
        if cycle.flow.write_paused:
            cycle.cut()
        elif cycle.response_started and response is not None:
            exchange.status = response.status
            self._metrics.failed(error)
            interrupt(response, cycle, error)
        else:
            self._refuse(exchange, error)
