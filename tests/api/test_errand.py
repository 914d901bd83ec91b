"""Which workers are left for a request whose pair has failed, and what is said when there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from router.api.eligible import missing
from router.api.errand import Errand
from router.core.facts import Candidate
from router.errors import UpstreamFailed
from router.fleet.route import Halves, Route
from router.pairs.choice import Choice
from router.pairs.half import Answer, Half, HalfFailed
from router.proxy.upstream import Upstream
from tests.pairs.ranks import a_rank

if TYPE_CHECKING:
    from router.core.rank import Rank

P0, P1, D0, D1 = (a_rank(name) for name in ("p0", "p1", "d0", "d1"))


def an_errand() -> Errand:
    nothing: Any = None  # neither the plan nor the exchange is looked at
    return Errand(nothing, nothing, 1, lambda ranks: ranks, lambda ranks: ranks)


def test_who_has_room_is_asked_first() -> None:
    nothing: Any = None
    room = Errand(nothing, nothing, 1, lambda ranks: [rank for rank in ranks if rank is P1], list)
    assert room.among([P0, P1]) == [P1]
    assert room.among([P0]) == [P0]


def a_failure(rank: Rank, code: int | None = None, *, own: bool = False) -> HalfFailed:
    half = Half(rank, Upstream("http://10.0.0.1"), b"/", [])
    answer = None if code is None else Answer(code, code, [], b"")
    return HalfFailed(half, UpstreamFailed("why"), answer, own=own)


def a_pair() -> Choice:
    return Choice(Candidate(P0, 0, 0, 9), Candidate(D0, 0, 0, 9))


@pytest.mark.parametrize(("code", "own"), [(None, False), (429, False), (503, False), (500, True)])
def test_a_half_that_was_at_fault_is_left_out(code: int | None, own: bool) -> None:
    errand = an_errand()
    errand.failed(a_failure(P0, code, own=own), a_pair())
    assert errand.among([P0, P1]) == [P1]
    assert errand.among([P0]) == []
    assert errand.among([D0, D1]) == [D0, D1]
    assert errand.attempts == 1


def test_after_a_refusal_nobody_who_is_spared_is_asked() -> None:
    nothing: Any = None
    errand = Errand(nothing, nothing, 1, lambda ranks: ranks, lambda ranks: [r for r in ranks if r is not D1])
    assert errand.among([D0, D1]) == [D0, D1]
    errand.failed(a_failure(P0, 429), a_pair())
    assert errand.among([D0, D1]) == [D0]
    assert errand.among([D1]) == []


def test_where_either_may_be_at_fault_others_come_first() -> None:
    errand = an_errand()
    errand.failed(a_failure(D0, 500), a_pair())
    assert errand.among([P0, P1]) == [P1]
    assert errand.among([D0, D1]) == [D1]
    assert errand.among([D0]) == [D0]


def test_where_either_was_too_slow_a_pair_with_nobody_new_is_not_worth_another_time_limit() -> None:
    errand = an_errand()
    late = a_failure(P0)
    late.shared = True
    errand.failed(late, a_pair())
    assert (errand.among([P0, P1]), errand.among([D0, D1])) == ([P1], [D1])
    assert errand.shuns(a_pair())
    assert not errand.shuns(Choice(Candidate(P0, 0, 0, 9), Candidate(D1, 0, 0, 9)))


def test_it_is_said_which_role_is_missing() -> None:
    assert "no decode worker" in missing(Route("m", None, "sglang", [], halves={"sglang": Halves([P0], [])}))
    assert "no prefill worker" in missing(Route("m", None, "vllm", [], halves={"vllm": Halves([], [D0])}))
    two = Route("m", None, "vllm", [], halves={"vllm": Halves([P0], []), "sglang": Halves([], [D0])})
    assert "run different engines" in missing(two)
    assert "cannot split" in missing(Route("m", None, "vllm", [], halves={"vllm": Halves([P0], [D0])}))
    assert "no worker that serves 'm'" in missing(Route("m", None, "sglang", [], halves={}))
