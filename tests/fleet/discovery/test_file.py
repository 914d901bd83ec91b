"""A file of workers is followed; a broken one changes nothing and says so once."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from router.errors import ConfigError
from router.fleet.discovery import file as file_module
from router.fleet.discovery.file import FileSource, read_workers
from tests.fleet.discovery.following import following, logged
from tests.fleet.discovery.test_reconciler import settled, stand_ins
from tests.threads import threads_of
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "text",
    [
        "- http://a:1\n- url: http://b:2\n  block-size: 16\n",
        '["http://a:1", {"url": "http://b:2", "block_size": 16}]',
        "# two\n['http://a:1', 'http://b:2,block-size=16']",
    ],
)
def test_workers_are_a_list_of_texts_or_mappings_in_yaml_or_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "workers").write_text(text)
    one, two = read_workers(str(tmp_path / "workers"))
    assert (one.url, two.url, two.block_size) == ("http://a:1", "http://b:2", 16)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "workers: expected a list, [] for an empty one, got nothing"),
        ("workers: []", "workers: expected a list, [] for an empty one, got a mapping"),
        ("- http://a:1\n- ftp://b", "workers:2: worker 'ftp://b': url: expected http://host:port"),
        (
            "- [http://a:1]",
            "workers:1: a worker: url: expected http://host:port or https://host:port, no query, ",
        ),
        ("- http://a:1\n- url: http://A:1/", "workers:2: worker http://A:1/ is given twice"),
        ("- url: http://a:1\n  port: 1", "workers:1: worker 'http://a:1': setting: expected one of kv, "),
        ("- 'http://a:1", "workers:1: not YAML"),
        (None, "workers: cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_names_the_file_and_line(tmp_path: Path, text: str | None, expected: str) -> None:
    path = tmp_path / "workers"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        FileSource(str(path))
    assert caught.value.message.removeprefix(f"{tmp_path}/").startswith(expected)
    assert "\n" not in caught.value.message


async def test_the_fleet_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "workers.json"
    async with stand_ins(3) as (one, two, three):
        path.write_text(json.dumps([one, two]))
        async with following(FileSource(str(path))) as here:
            await settled(here, one, two)
            stays = here.worker(two)
            path.write_text(json.dumps([two, {"url": three, "topic": "kv"}]))
            await settled(here, two, three)
            path.write_text(json.dumps([two, three]))
            await until(lambda: here.worker(three).spec.topic is None)
            replacement = tmp_path / "new"
            replacement.write_text("[]")
            replacement.rename(path)
            await until(lambda: not here.fleet.workers)
            path.write_text(json.dumps([two]))
            await settled(here, two)
            assert stays.ranks == []


async def test_a_file_that_has_changed_is_read_where_no_request_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "workers.yaml"
    async with stand_ins(2) as (one, two):
        path.write_text(f"- {one}")
        async with following(FileSource(str(path))) as here:
            await settled(here, one)
            read = threads_of(monkeypatch, file_module, "read_workers")
            path.write_text(f"- {two}")
            await settled(here, two)
            assert read
            assert threading.main_thread() not in read


async def test_a_broken_file_keeps_the_fleet_and_says_so_once(tmp_path: Path) -> None:
    path = tmp_path / "workers.yaml"
    async with logged() as log, stand_ins(2) as (one, two):
        path.write_text(f"- {one}")
        async with following(FileSource(str(path))) as here:
            await settled(here, one)
            before = here.worker(one)
            path.write_text(f"- {one}\n- ftp://")
            await until(lambda: log.count("stay what they were"))
            path.unlink()
            await until(lambda: log.count("No such file"))
            assert list(here.discovery.failing().values()) == [True]
            path.write_text(f"- {one}\n- {two}")
            await settled(here, one, two)
            assert here.worker(one) is before
            assert list(here.discovery.failing().values()) == [False]
            assert log.count("stay what they were") == 2
