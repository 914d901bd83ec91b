"""Files that are followed."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from router import watched
from router.api.keyfile import KeyFile
from router.api.keys import Keyring
from router.front import Front
from router.layers import load
from router.live import Live
from router.reload import Reload
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

NOTHING = cast("Any", None)  # what takes up settings, of which none changes here that can be
Watch = tuple["Coroutine[Any, Any, None]", str]


def settings(path: Path) -> Watch:
    """Return what follows a file of settings, and what is said once it is read."""
    path.write_text("workers: [http://a:1]")
    config = load({"config": str(path)}, {})
    live = Live(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, Front(config))
    reload = Reload(config, live, {"config": str(path)}, {})
    path.write_text("workers: [http://a:1]\nport: 22")
    return reload.watch(), "need a restart: --port"


def keys(path: Path) -> Watch:
    """Return what follows a file of keys."""
    path.write_text("a-key-of-somebody")
    file = KeyFile(Keyring(), str(path), [])
    file.load()
    path.write_text("a-key-of-somebody\na-key-of-somebody-else")
    return file.watch(), "read the keys of 2 clients"


@pytest.mark.parametrize("follows", [settings, keys])
async def test_a_file_is_followed_on_when_there_was_no_thread_to_read_it_in(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    follows: Callable[[Path], Watch],
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(watched, "_AGAIN_SECONDS", 0.0)
    loop, none = asyncio.get_running_loop(), ThreadPoolExecutor(1)
    none.shutdown()
    loop.set_default_executor(none)
    watch, said = follows(tmp_path / "file")
    task = asyncio.ensure_future(watch)
    await until(lambda: "could not be followed" in caplog.text, "it is told")
    loop.set_default_executor(ThreadPoolExecutor(1))
    await until(lambda: said in caplog.text, "it is read")
    task.cancel()
