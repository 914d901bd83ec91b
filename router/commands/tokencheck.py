"""A worker's token ids against ours: by its own /tokenize, and by what it counts in prompts it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from router.commands.ink import plural
from router.commands.trial import complete
from router.errors import ConfigError, UpstreamFailed
from router.prompts.check import SAMPLES
from router.prompts.reader import read_prompt
from router.prompts.request import parse
from router.prompts.store import TokenizerStore

if TYPE_CHECKING:
    from router.commands.checkup import Means
    from router.commands.findings import Chart
    from router.engines.description import Description
    from router.proxy.upstream import Upstream

_CHECK = "tokenizer"
_CURE = "give --tokenizer the model's own tokenizer, of the same version"


async def check_tokens(
    chart: Chart, said: Description, means: Means, upstream: Upstream, *, tried: bool
) -> None:
    """Enter what is found; `tried`: the worker may be sent prompts."""
    try:
        store = TokenizerStore(means.tokenizer, deadline=means.seconds)
    except ConfigError as error:
        chart.wrong(_CHECK, error.message, _CURE)
        return
    try:
        library, why = await store.compared(said, upstream)
        if library is None:
            chart.note(_CHECK, why, f"{_CURE}, or make the worker's path readable here")
            return
        if tried:
            await _count(store, said, means, upstream)
    finally:
        await store.close()
    _judge(chart, store, said, library)


async def _count(store: TokenizerStore, said: Description, means: Means, upstream: Upstream) -> None:
    """Compare counts; a worker that does not answer a sample says nothing with it."""
    tokenizer = store.get(said.model, said.engine)
    for kind, sample in SAMPLES:
        body = {**sample, "model": said.model, "max_tokens": 1}
        prompt = read_prompt(parse(kind, msgspec.json.encode(body)), tokenizer, said.engine)
        try:
            usage = await complete(upstream, kind.value, [], body, means.seconds)
        except UpstreamFailed:
            continue
        theirs = usage.get("prompt_tokens")
        if prompt.exact and isinstance(theirs, int):
            store.check.counted(said.model, said.engine, prompt.count, theirs)


def _judge(chart: Chart, store: TokenizerStore, said: Description, library: str) -> None:
    record = store.check.records.get((said.model, said.engine))
    if record is None:
        chart.note(
            _CHECK, f"{library} could not be compared with the worker's", "see that it answers requests"
        )
    elif record.wrong:
        chart.wrong(_CHECK, record.why, _CURE)
    else:
        chart.well(_CHECK, f"{library} agrees with the worker in {plural(record.right, 'sample')}")
