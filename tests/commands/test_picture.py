from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.commands.ink import Ink, cut, short, span, width
from router.commands.picture import Picture
from router.observe.decisions import Decision, Offer
from router.observe.resets import Reset
from router.observe.rows import RankRow, WorkerRow
from router.observe.seen import Seen, Totals
from router.printable import printable

TEXT = st.text(max_size=60)
RANK = st.builds(
    RankRow,
    rank=st.integers(0, 7),
    view=st.sampled_from(["live", "degraded", "silent"]),
    blocks=st.dictionaries(st.sampled_from(["GPU", "CPU_PINNED", "DISK", "x"]), st.integers(0, 10**9)),
    predicted_blocks=st.integers(0, 10**6),
    event_age_seconds=st.none() | st.floats(0, 1e6),
)
ROW = st.builds(
    WorkerRow,
    url=TEXT.map("http://{}".format),
    state=st.sampled_from(["ready", "failed"]),
    model=st.none() | TEXT,
    ranks=st.lists(RANK, max_size=3),
    prompt_tokens=st.integers(0, 1000),
    cached_tokens=st.integers(0, 2000),
)
OFFER = Offer("http://a", 0, 1, 2, 3, 4, 5, 6.0)
SEEN = st.builds(
    Seen,
    time=st.floats(0, 2e9),
    version=st.just("1"),
    policy=st.just("kv"),
    totals=st.builds(Totals, *[st.integers(0, 10**12)] * 5),
    workers=st.lists(ROW, max_size=6),
    resets=st.lists(st.builds(Reset, st.floats(0, 2e9), TEXT, st.just(0), TEXT), max_size=3),
    decisions=st.lists(
        st.builds(
            Decision,
            st.just(1.0),
            TEXT,
            TEXT,
            st.just(5),
            TEXT,
            TEXT,
            st.just(0),
            st.just(1),
            st.just([OFFER]),
        ),
        max_size=9,
    ),
)


@settings(max_examples=25)
@given(st.lists(SEEN, min_size=1, max_size=4), TEXT, st.integers(1, 130), st.integers(1, 40))
def test_whatever_is_seen_fits_the_window(all_seen: list[Seen], lost: str, columns: int, rows: int) -> None:
    picture = Picture("http://127.0.0.1:8000", Ink())
    for seen in all_seen:
        picture.see(seen)
        if seen.whole:
            picture.lose(lost)
        shown = picture.lines(columns, rows)
        assert 0 < len(shown) <= rows
        assert all(width(line) <= columns for line in shown)
        assert all(line.isprintable() for line in shown)


@given(st.text(), st.integers(0, 30))
def test_a_text_is_cut_to_its_columns(text: str, columns: int) -> None:
    assert width(cut(printable(text), columns)) <= columns


@given(st.floats(0, 9e11))
def test_a_number_is_short(number: float) -> None:
    assert len(short(number)) <= 6


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-0.1, "0 s"), (1.25, "1.2 s"), (119, "119 s"), (1110, "18 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_a_time_that_has_passed_is_in_its_largest_unit(seconds: float, said: str) -> None:
    assert span(seconds) == said
