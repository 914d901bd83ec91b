"""No error that nobody has thought of ends what follows the sources."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from router.fleet.discovery import discovery, file
from router.fleet.discovery.file import FileSource
from tests.fleet.discovery.following import Said, following, logged
from tests.fleet.discovery.test_reconciler import settled, stand_ins, wanted
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from router.fleet.discovery.wanted import Tell


class Ends(Said):
    """Fails as often as it is told to, when it is told to."""

    def __init__(self, times: int) -> None:
        super().__init__("ends")
        self.times = times
        self.may_fail = asyncio.Event()

    async def run(self, tell: Tell) -> None:
        """Fail, or tell what is wanted."""
        if self.times:
            self.times -= 1
            await self.may_fail.wait()
            raise RuntimeError("nobody has thought of it")
        await super().run(tell)


async def test_a_source_that_fails_is_shown_and_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_AGAIN_SECONDS", 0.05)
    ends, other = Ends(2), Said("other")
    async with logged() as log, stand_ins(2) as (one, two), following(ends, other) as here:
        ends.want(wanted(one))
        other.want(wanted(two))
        await settled(here, two)
        ends.may_fail.set()
        await until(lambda: here.discovery.failing() == {"ends": True, "other": False})
        await settled(here, one, two)
        assert here.discovery.failing() == {"ends": False, "other": False}
        assert log.count("discovery: ends has failed; its workers stay what they were") == 2


async def test_a_worker_that_cannot_be_taken_up_is_no_end_of_the_others() -> None:
    source = Said()
    async with logged() as log, stand_ins(2) as (one, two), following(source) as here:
        odd = replace(wanted("http://127.0.0.1:9"), addresses=("no address",))
        source.want(odd, wanted(one))
        await settled(here, one)
        source.want(odd, wanted(two))
        await settled(here, two)
        assert log.count("could not be taken up") == 1


async def test_a_reconciler_that_fails_is_shown_and_tries_again() -> None:
    source = Said()
    async with logged() as log, stand_ins(2) as (one, two), following(source) as here:
        source.want(wanted(one))
        await settled(here, one)
        source.want(None)  # type: ignore[arg-type]
        await until(lambda: here.discovery.failing() == {"said": True})
        assert here.taking() == [one]
        source.want(wanted(two))
        await settled(here, two)
        await until(lambda: here.discovery.failing() == {"said": False})
        assert log.count("discovery has failed; the fleet stays what it was") == 1


async def test_a_file_that_fails_oddly_is_read_again_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_AGAIN_SECONDS", 0.05)
    path = tmp_path / "workers.yaml"
    async with stand_ins(2) as (one, two):
        path.write_text(f"[{one}]")
        source = FileSource(str(path))
        async with following(source) as here:
            await settled(here, one)
            with monkeypatch.context() as odd:
                odd.setattr(file, "read_list", lambda _: [None])
                path.write_text(f"[{one}, {two}]")
                await until(lambda: source.failing)
            assert here.taking() == [one]
            path.write_text(f"[{two}]")
            await settled(here, two)
            assert here.discovery.failing() == {source.name: False}
