"""One client's request while it is served."""

from __future__ import annotations

from random import getrandbits
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.observe.story import Story
    from router.proxy.cycle import Cycle
    from router.proxy.headers import Field
    from router.proxy.response import Response

REQUEST_ID = b"x-request-id"
CLIENT_CLOSED_REQUEST = 499  # nginx's number for it; nobody is left to see it but the metrics


class Exchange:
    """What goes to a worker, and where the answer goes; `status` is what the client got, so far.

    `model` is the one asked for, once it is known to be served here. `began` is when the request came,
    `first` when the first of its answer went out, on `perf_counter`; 0 before.
    `story` is what observers see of it, None when there are none.
    """

    __slots__ = ("began", "cycle", "first", "headers", "id", "model", "response", "status", "story")

    def __init__(self, cycle: Cycle) -> None:
        self.began = perf_counter()
        self.first = 0.0
        self.model: str | None = None
        self.cycle = cycle
        self.headers: list[Field]
        self.headers, given = cycle.sender.onward(cycle.headers)
        self.id = given or b"%032x" % getrandbits(128)
        self.headers.append((REQUEST_ID, self.id))
        self.response: Response | None = None
        self.status = CLIENT_CLOSED_REQUEST
        self.story: Story | None = None
