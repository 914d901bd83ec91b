"""From a body that Envoy shows to the endpoint that should have it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from router.api.answers import routed
from router.api.exchange import REQUEST_ID
from router.api.picking import endpoint_of
from router.epp.modes import Modes
from router.errors import NoWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.api.admission import Admission
    from router.api.dispatch import Dispatcher
    from router.api.picking import Pick
    from router.api.planner import Planner
    from router.api.wishes import Wishes
    from router.core.rank import Rank
    from router.epp.passage import Passage
    from router.fleet.fleet import Fleet
    from router.prompts.request import Kind
    from router.proxy.body import BodyBudget
    from router.proxy.headers import Field


class Picker:
    """Chooses as the router does for what it carries itself.

    `most_bytes`: of a body; `bodies`: of all that are held. `passage` begins to tell of a
    request.
    """

    def __init__(
        self,
        fleet: Fleet,
        planner: Planner,
        dispatcher: Dispatcher,
        admission: Admission,
        wishes: Wishes,
        *,
        bodies: BodyBudget,
        most_bytes: int,
        passage: Callable[[Kind, list[Field]], Passage],
    ) -> None:
        self._fleet = fleet
        self._planner = planner
        self._dispatcher = dispatcher
        self._admission = admission
        self._wishes = wishes
        self.bodies = bodies
        self.most_bytes = most_bytes
        self.passage = passage
        self.modes = Modes()

    @property
    def ready(self) -> bool:
        """Whether one worker can take a request."""
        return self._fleet.ready

    async def pick(self, body: bytes, passage: Passage, among: frozenset[str] | None) -> tuple[Pick, str]:
        """Return the choice and its endpoint; the pick must be closed.

        Raises BadRequest, UnknownModel, NoWorker, QueueFull.
        """
        headers = passage.headers
        wish = self._wishes.of(headers)
        check = self._admission.check_noting(passage, headers)
        plan = await self._planner.plan(passage.kind, body or b"{}", wish, check)
        passage.planned(plan)
        among_them = partial(self._with_endpoint, among)
        pick = await self._dispatcher.pick(plan, headers, among_them, passage.story)
        endpoint = self._endpoint(pick.candidate.rank)
        if endpoint is None:
            pick.close()
            raise NoWorker("the worker that was chosen has left", retry_after=1)
        passage.chosen()
        return pick, endpoint

    def told(self, pick: Pick) -> list[Field]:
        """Return the headers that say in an answer where its request went."""
        return [field for field in routed(pick.candidate, b"") if field[0] != REQUEST_ID]

    def _with_endpoint(self, among: frozenset[str] | None, ranks: list[Rank]) -> list[Rank]:
        found = ((rank, self._endpoint(rank)) for rank in ranks)
        return [rank for rank, endpoint in found if endpoint and (among is None or endpoint in among)]

    def _endpoint(self, rank: Rank) -> str | None:
        return endpoint_of(self._fleet.worker_of(rank))
