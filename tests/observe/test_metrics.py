from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.errors import BadRequest, NoWorker, RouterError, UpstreamFailed, UpstreamTimeout
from router.observe.metrics import MOST_MODELS, OTHER, ROUTES, STATUS_CLASSES, Metrics


@given(st.lists(st.tuples(st.text() | st.sampled_from(sorted(ROUTES)), st.integers())))
def test_no_path_or_status_makes_a_label_of_its_own(answers: list[tuple[str, int]]) -> None:
    metrics = Metrics()
    for route, status in answers:
        metrics.answered(route, status, 0.1)
    (requests,) = (counts.requests for counts in metrics.models.values())
    assert sum(requests.values()) == len(answers)
    assert {route for route, _ in requests} <= ROUTES | {OTHER}
    assert {status for _, status in requests} <= set(STATUS_CLASSES)


def test_an_answer_counts_under_its_route_and_the_class_of_its_status() -> None:
    metrics = Metrics()
    metrics.answered("/generate", 200, 0.1, "m")
    metrics.answered("/generate", 299, 0.1, "m")
    metrics.answered("/nowhere", 404, 0.1)
    assert metrics.of("m").requests == {("/generate", "2xx"): 2}
    assert metrics.of(None).requests == {("other", "4xx"): 1}
    assert sum(metrics.of("m").request.counts) == 2


def test_however_many_models_there_have_been_the_labels_are_bounded() -> None:
    metrics = Metrics()
    for number in range(3 * MOST_MODELS):
        metrics.answered("/generate", 200, 0.1, f"step-{number}")
    assert len(metrics.models) == MOST_MODELS + 1
    assert metrics.of(None).requests == {("/generate", "2xx"): 2 * MOST_MODELS}
    assert metrics.of("step-0").requests == {("/generate", "2xx"): 1}


def test_an_exact_prediction_has_a_bucket_of_its_own() -> None:
    counts = Metrics().of("m")
    for expected, cached in ((64, 64), (0, 0), (64, 63), (64, 65), (64, 0)):
        counts.finished(expected, 100, cached)
    error = counts.prediction_error
    assert error.counts[error.bounds.index(0)] == 2
    assert counts.cached_tokens == 64 + 63 + 65
    assert (counts.checked_prompt_tokens, counts.checked_overlap_tokens) == (500, 256)


def test_tokens_saved_are_those_reported_or_else_those_expected() -> None:
    counts = Metrics().of("m")
    counts.finished(64, 100, 48)
    counts.finished(64, 100, None)
    assert counts.saved_tokens == 48 + 64
    assert counts.cached_tokens == 48


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
    metrics.chosen("m", "kv", 64, 100)
    metrics.chosen("m", "kv", 0, 50)
    assert metrics.decisions == {("kv", "overlap"): 1, ("kv", "load"): 1}
    assert (metrics.of("m").prompt_tokens, metrics.of("m").overlap_tokens) == (150, 64)
