from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

from router import reload as reload_module
from router.api import keyfile
from router.front import Front
from router.layers import load
from router.live import Live
from router.reload import Reload
from tests.threads import threads_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NOTHING = cast("Any", None)  # what takes up settings, of which none changes here that can be


async def test_files_are_read_and_checked_where_no_request_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, keys = tmp_path / "router.yaml", tmp_path / "keys"
    keys.write_text("a-key-of-somebody")
    path.write_text(f"workers: [http://a:1]\napi_keys: {keys}\n")
    flags = {"config": str(path)}
    config = load(flags, {})
    live = Live(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, Front(config))
    reload = Reload(config, live, flags, {})
    path.write_text(f"workers: [http://a:1]\napi_keys: {keys}\nport: 1\n")
    settings = threads_of(monkeypatch, reload_module, "load")
    hashed = threads_of(monkeypatch, keyfile, "read_keys")
    await reload.now()
    assert "settings changed that need a restart: --port" in caplog.text
    assert len(settings) == len(hashed) == 1
    assert threading.main_thread() not in {*settings, *hashed}
