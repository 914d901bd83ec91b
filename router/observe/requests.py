"""The request log: one line for a request that has ended, of a sample of them and of all that fail.

It says where a request went and what became of it, nothing of what was in it but the name of the model.
Requests without a valid key have no line here.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

from router.errors import NotAllowed
from router.observe.logs import fields
from router.observe.story import Moment

if TYPE_CHECKING:
    from random import Random

    from router.observe.story import Story

_FAILED = 400
_ID_CHARACTERS = 128
_MODEL_CHARACTERS = 128
_PLAIN = re.compile(r"[!#-<>-~]+")  # neither spaces nor quotes nor =
_log = logging.getLogger(__name__)


class RequestLog:
    """An observer. `share` of the requests that go well are shown. About 25 us for a line, 0.3 us without."""

    def __init__(self, share: float, random: Random) -> None:
        self._share = share
        self._random = random.random

    def observe(self, moment: Moment, story: Story) -> None:
        """Write the line once the request is over."""
        if moment is not Moment.ENDED:
            return
        if story.error == NotAllowed.code:
            return  # strangers could fill the log; `Knocks` tells of them
        failed = story.status >= _FAILED or bool(story.error)
        if failed or self._random() < self._share:
            said = _said(story)
            line = " ".join(f"{name}={_shown(value)}" for name, value in said.items() if value is not None)
            level = logging.WARNING if failed else logging.INFO
            _log.log(level, "request %s", line, extra=fields("request", message="request", **said))


def _said(story: Story) -> dict[str, Any]:
    plan, tries = story.plan, story.tries
    said: dict[str, Any] = {
        "id": story.exchange.id[:_ID_CHARACTERS].decode("latin-1"),
        "path": story.kind.value,
        "status": story.status,
        "error": story.error or None,
        "model": plan.route.model if plan is not None else _short(story.asked),
        "lora": plan.route.lora if plan is not None else None,
        "prompt_tokens": plan.prompt.count if plan is not None else None,
        "seconds": round(story.ended - story.began, 6),
        "tries": len(tries),
    }
    return said | _tried(story)


def _short(name: str | None) -> str | None:
    return name if name is None else f"{name:.{_MODEL_CHARACTERS}}"


def _tried(story: Story) -> dict[str, Any]:
    """Say what became of the last try."""
    if not story.tries:
        return {}
    last = story.tries[-1]
    first, decode = last.first, last.decode
    return {
        "worker": first.rank.worker,
        "rank": first.rank.rank,
        "decode_worker": decode.rank.worker if decode is not None else None,
        "decode_rank": decode.rank.rank if decode is not None else None,
        "overlap_tokens": first.overlap_tokens,
        "cached_tokens": last.cached_tokens,
        "waited_seconds": round(last.sent - (story.planned or story.began), 6),
        "first_byte_seconds": round(last.started - story.began, 6) if last.started else None,
    }


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
