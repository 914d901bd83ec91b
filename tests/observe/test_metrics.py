from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import BadRequest, NoWorker, RouterError, UpstreamFailed, UpstreamTimeout
from router.observe.metrics import OTHER_ROUTE, ROUTES, STATUS_CLASSES, Metrics


@settings(deadline=None)
@given(st.lists(st.tuples(st.text() | st.sampled_from(sorted(ROUTES)), st.integers())))
def test_no_path_or_status_makes_a_label_of_its_own(answers: list[tuple[str, int]]) -> None:
    metrics = Metrics()
    for route, status in answers:
        metrics.answered(route, status, 0.1)
    assert sum(metrics.requests.values()) == len(answers)
    assert {route for route, _ in metrics.requests} <= ROUTES | {OTHER_ROUTE}
    assert {status for _, status in metrics.requests} <= set(STATUS_CLASSES)


def test_an_answer_counts_under_its_route_and_the_class_of_its_status() -> None:
    metrics = Metrics()
    metrics.answered("/generate", 200, 0.1)
    metrics.answered("/generate", 299, 0.1)
    metrics.answered("/nowhere", 404, 0.1)
    assert metrics.requests == {("/generate", "2xx"): 2, ("other", "4xx"): 1}
    assert metrics.request.cumulative()[-1] == ("+Inf", 3)


def test_an_exact_prediction_has_a_bucket_of_its_own() -> None:
    metrics = Metrics()
    for expected, cached in ((64, 64), (0, 0), (64, 63), (64, 65), (64, 0)):
        metrics.reported(expected, cached)
    up_to = dict(metrics.prediction_error.cumulative())
    assert up_to["0.0"] - up_to["-1.0"] == 2
    assert metrics.cached_tokens == 64 + 63 + 65


def test_a_failure_counts_by_whose_fault_it_was() -> None:
    metrics = Metrics()
    for error in (
        BadRequest("x"),
        UpstreamTimeout("x"),
        UpstreamFailed("x"),
        NoWorker("x"),
        RouterError("x"),
    ):
        metrics.failed(error)
    assert metrics.errors == {"client": 1, "worker": 2, "capacity": 1, "router": 1}


def test_a_choice_counts_by_what_decided_it() -> None:
    metrics = Metrics()
    metrics.chosen("kv", 64, 100)
    metrics.chosen("kv", 0, 50)
    assert metrics.decisions == {("kv", "overlap"): 1, ("kv", "load"): 1}
    assert (metrics.prompt_tokens, metrics.overlap_tokens) == (150, 64)
