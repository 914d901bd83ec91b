from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.core.waiting import Line, Place


def enter(line: Line[str], name: str, priority: int = 0) -> Place[str] | None:
    return line.enter(priority, name)[0]


def drain(line: Line[str]) -> list[str]:
    names = []
    while (first := line.first) is not None:
        names.append(first.item)
        line.leave(first)
    return names


def test_who_came_first_goes_first() -> None:
    line: Line[str] = Line(9)
    for name in "abc":
        enter(line, name)
    assert drain(line) == ["a", "b", "c"]


def test_a_higher_priority_goes_before_whoever_waits() -> None:
    line: Line[str] = Line(9)
    for name, priority in (("a", 0), ("b", 5), ("c", -1), ("d", 5)):
        enter(line, name, priority)
    assert drain(line) == ["b", "d", "a", "c"]


def test_a_full_line_takes_nobody_of_the_same_priority() -> None:
    line: Line[str] = Line(1)
    enter(line, "a")
    assert not line.takes(0)
    assert line.enter(0, "b") == (None, None)
    assert drain(line) == ["a"]


def test_a_full_line_turns_the_newest_of_the_lowest_priority_away_for_a_higher_one() -> None:
    line: Line[str] = Line(3)
    for name, priority in (("a", 1), ("b", 0), ("c", 0)):
        enter(line, name, priority)
    place, ousted = line.enter(1, "d")
    assert place is not None
    assert ousted is not None
    assert ousted.item == "c"
    assert drain(line) == ["a", "d", "b"]


def test_a_line_of_length_nought_takes_nobody() -> None:
    line: Line[str] = Line(0)
    assert line.enter(9, "a") == (None, None)


def test_leaving_twice_is_harmless() -> None:
    line: Line[str] = Line(9)
    first = enter(line, "a")
    enter(line, "b")
    assert first is not None
    line.leave(first)
    line.leave(first)
    assert drain(line) == ["b"]


@given(st.integers(0, 5), st.lists(st.tuples(st.booleans(), st.integers(-2, 2)), max_size=40))
def test_a_line_is_the_sorted_list_of_who_is_left(most: int, steps: list[tuple[bool, int]]) -> None:
    line: Line[int] = Line(most)
    held: list[tuple[int, int]] = []
    for number, (leaves, priority) in enumerate(steps):
        if leaves and held:
            first = line.first
            assert first is not None
            assert first.item == held.pop(0)[1]
            line.leave(first)
        else:
            line.enter(priority, number)
            held.append((-priority, number))
            held.sort()
            del held[most:]
        assert len(line) == len(held) <= most
