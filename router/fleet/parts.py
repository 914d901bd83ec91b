"""What a fleet makes its pure parts with; who keeps a record puts its own in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from router.core.cursor import Cursor
from router.core.index import Index
from router.core.ledger import Load
from router.core.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from router.core.rank import Rank
    from router.fleet.worker import Worker


def _view(_worker: str, _rank: int, index: Index, model: str, **settings: Any) -> View:
    return View(index, model, **settings)


def _cursor(_view: View, **settings: Any) -> Cursor:
    return Cursor(**settings)


def _load(_view: View, earlier: Load | None) -> Load:
    if earlier is None:
        return Load()
    earlier.forget_engine()
    return earlier


def _expired(_rank: Rank, _now: float) -> None:
    return


def _ticked(_now: float, _workers: Iterable[Worker]) -> None:
    return


@dataclass(frozen=True, slots=True)
class Parts:
    """`view` is given the worker's URL and the rank's number, then as `View`; the next two the view.

    `load` is also given that of a rank which this one replaces, if any: but for what the engine has said,
    it goes on with it.
    `ticked` is called with the loop's time once doubts have been forgiven, about once a second; `expired`
    with it whenever a portion of a rank's predictions has been dropped.
    """

    index: Callable[..., Index] = Index
    view: Callable[..., View] = _view
    cursor: Callable[..., Cursor] = _cursor
    load: Callable[[View, Load | None], Load] = _load
    ticked: Callable[[float, Iterable[Worker]], None] = _ticked
    expired: Callable[[Rank, float], None] = _expired
