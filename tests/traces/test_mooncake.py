from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from workers.traces.mooncake import read
from workers.traces.workload import WorkloadError, tokens_of

if TYPE_CHECKING:
    from pathlib import Path

LINE = {"timestamp": 3000, "input_length": 1100, "output_length": 7, "hash_ids": [0, 4, 9]}


def write(path: Path, *lines: dict[str, Any] | str) -> Path:
    file = path / "trace.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return file


def test_a_line_is_a_request_of_blocks_of_512_tokens(tmp_path: Path) -> None:
    trace = read(write(tmp_path, LINE))
    assert (trace.name, trace.page_size) == ("trace", 512)
    (ask,) = trace.asks
    assert (ask.at, ask.tokens, ask.output) == (0.0, 1100, 7)
    assert ask.segments == ((0, 512), (4, 512), (9, 76))


def test_times_begin_with_the_first_request_whatever_the_order_of_lines(tmp_path: Path) -> None:
    trace = read(write(tmp_path, LINE | {"timestamp": 9000}, LINE, LINE | {"timestamp": 4500}))
    assert [ask.at for ask in trace.asks] == [0.0, 1.5, 6.0]


def test_requests_of_one_moment_come_evenly_until_the_next_unless_that_is_not_wanted(tmp_path: Path) -> None:
    lines = [LINE, LINE, LINE, LINE | {"timestamp": 6000}, LINE | {"timestamp": 6000}]
    file = write(tmp_path, *lines)
    assert [ask.at for ask in read(file).asks] == [0.0, 1.0, 2.0, 3.0, 3.0]
    assert [ask.at for ask in read(file, spread=False).asks] == [0.0, 0.0, 0.0, 3.0, 3.0]


def test_a_rest_that_no_hash_names_is_shared_with_nobody(tmp_path: Path) -> None:
    unnamed = LINE | {"hash_ids": [0, 4]}
    first, second = read(write(tmp_path, unnamed, unnamed)).asks
    assert first.segments[:2] == second.segments[:2]
    assert first.segments[2] != second.segments[2]
    assert tokens_of(first.segments, 1 << 20) != tokens_of(second.segments, 1 << 20)


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        LINE | {"hash_ids": [1]},
        LINE | {"hash_ids": [1, 2, 3, 4]},
        LINE | {"hash_ids": [1, 2, -3]},
        LINE | {"hash_ids": [1, 2, 1 << 90]},
        LINE | {"input_length": 0, "hash_ids": []},
        LINE | {"output_length": -1},
        {"timestamp": 1},
    ],
)
def test_a_line_that_is_none_is_told_by_its_number(tmp_path: Path, line: Any) -> None:
    with pytest.raises(WorkloadError, match=r"trace\.jsonl, line 2: ") as error:
        read(write(tmp_path, LINE, line))
    assert "\n" not in str(error.value)


def test_files_that_are_not_there_or_have_no_requests_are_told(tmp_path: Path) -> None:
    for file in (tmp_path / "none.jsonl", tmp_path, write(tmp_path, "")):
        with pytest.raises(WorkloadError, match=str(file)):
            read(file)
