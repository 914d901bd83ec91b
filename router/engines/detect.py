"""Which engine a worker runs: as the operator says, or found out from its answers.

Facts: SGLang (0.5.23) answers `/server_info`, older `/get_server_info`, with its flags; vLLM (0.32) answers
`/version`, and `/server_info` in development mode only, with other contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from router.engines import sglang, vllm
from router.engines.answer import as_object, get
from router.errors import UpstreamFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.core.word import EngineLoad
    from router.engines.control import Action, Outcome
    from router.engines.description import Description
    from router.fleet.spec import EngineName, WorkerSpec
    from router.proxy.upstream import Upstream


class Engine(Protocol):
    """What a file of this room offers.

    `DECODES_ALONE`: whether a worker of role decode can compute a prompt itself.
    `PAUSE_MAY_CLEAR`: whether a pause can empty the cache without an event telling of it in time.
    `PAUSE_MODES`: what the router's API calls the ways to pause, and the engine's names of them.
    """

    DECODES_ALONE: bool
    PAUSE_MAY_CLEAR: bool
    PAUSE_MODES: Mapping[str, str]

    async def describe(self, upstream: Upstream, spec: WorkerSpec) -> Description:
        """Ask a worker who it is; UpstreamFailed when it cannot be used as it answers."""

    async def is_paused(self, upstream: Upstream) -> bool | None:
        """Whether the worker takes no work for now; None: it does not say."""

    async def weight_version(self, upstream: Upstream) -> str | None:
        """Return what the worker calls its present weights; None: it does not say."""

    async def loads(self, upstream: Upstream) -> dict[int, EngineLoad]:
        """Return the load of each rank that the worker says it of; UpstreamFailed when no answer comes."""

    async def control(self, upstream: Upstream, action: Action, body: dict[str, Any]) -> Outcome:
        """Pause, continue, flush, or update weights; UpstreamFailed when no answer comes."""

    def rank_headers(self, rank: int, dp: int) -> tuple[tuple[bytes, bytes], ...]:
        """Return the request headers that pin a request to `rank` of `dp`."""


ENGINES: Mapping[EngineName, Engine] = {"sglang": sglang, "vllm": vllm}

# Any one of these in /server_info is SGLang's.
_SGLANG_KEYS = {"model_path", "tokenizer_path", "kv_events", "disaggregation_mode"}


async def describe(upstream: Upstream, spec: WorkerSpec) -> Description:
    """Ask a worker who it is, finding its engine out first if the operator does not name it.

    Raises UpstreamFailed or UpstreamTimeout when it does not answer, or not as any known engine does.
    """
    name = spec.engine or await _engine(upstream)
    return await ENGINES[name].describe(upstream, spec)


async def _engine(upstream: Upstream) -> EngineName:
    info = await get(upstream, *sglang.SERVER_INFO)
    if not _SGLANG_KEYS.isdisjoint(as_object(info) or {}):
        return "sglang"
    version: dict[str, Any] = as_object(await get(upstream, "/version")) or {}
    if isinstance(version.get("version"), str):
        return "vllm"
    raise UpstreamFailed(
        f"neither SGLang nor vLLM answers: /server_info gave {info.status}, /version no version; "
        "is it still starting? otherwise give engine=sglang or engine=vllm"
    )
