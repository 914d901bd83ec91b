"""Texts that scrapes make are used again, and bounded."""

from __future__ import annotations

from router.observe.definition import Definition
from router.observe.rendering import LINES, Written, samples


def gauge(*labels: str) -> Definition:
    return Definition("gauge", "seen", "", labels, "Seen.", lambda _: [])


def lines(written: Written, *values: str) -> list[str]:
    return "".join(samples(gauge("worker"), [((value,), 1.0) for value in values], written)).splitlines()


def test_lines_are_made_some_at_a_time() -> None:
    values = [((str(number),), 1.0) for number in range(LINES + 1)]
    assert [piece.count("\n") for piece in samples(gauge("worker"), values, Written())] == [LINES, 1]


def test_labels_that_stay_are_written_once() -> None:
    written = Written()
    assert lines(written, "a") == ['kv_router_seen{worker="a"} 1.0']
    before = written.labels(("worker",))["a",]
    written.begin(1)
    lines(written, "a")
    assert written.labels(("worker",))["a",] is before


def test_no_more_labels_are_kept_than_a_scrape_has_lines() -> None:
    written = Written()
    for number in range(100):
        written.begin(2)
        lines(written, f"worker {number}", "stays")
        assert len(written.labels(("worker",))) <= 4


def test_of_the_numbers_of_a_scrape_nothing_is_left_in_the_next() -> None:
    written = Written()
    lines(written, "a")
    written.begin(1)
    assert not written.numbers
