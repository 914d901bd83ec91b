"""In which threads something is done: what takes long must not be done where requests are served."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def threads_of(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[threading.Thread]:
    """Return a list that each call of a module's function adds its thread to; the call is made as before."""
    done: list[threading.Thread] = []
    real = getattr(module, name)

    def noted(*arguments: Any) -> Any:
        done.append(threading.current_thread())
        return real(*arguments)

    monkeypatch.setattr(module, name, noted)
    return done
