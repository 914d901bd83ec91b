"""What can be seen of the fleet at one moment: a row for every worker, and in it one for every rank.

The rows are made when somebody asks (GET /workers, a scrape of /metrics) and kept by nobody; the collector
does not walk them, since no row can hold what holds it. Field names and their order are those of the JSON
that GET /workers answers.
"""

from __future__ import annotations

from collections.abc import Iterable  # noqa: TC003 - msgspec resolves the annotations when it encodes

import msgspec


class RankRow(msgspec.Struct, kw_only=True, gc=False):
    """One data-parallel rank's view and the stream that feeds it.

    `blocks` by tier, as the engine has said; `predicted_blocks` routed there and not yet confirmed;
    `last_seq` and `event_age_seconds` (now minus the engine's time in it) are those of the last batch
    applied, None before the first. `event_lag_seconds` is how late the latest live batch came, not less than
    0; the shortest and the longest of the last minute or two may be, when the engine's clock is ahead. Counts
    are since the worker was added: `batches` applied, `duplicates` dropped, `early_batches` with a lag below
    0, `events` of the batches by kind, `gaps` found in the sequence, `lost_gaps` that no replay has filled,
    `replays` asked for, `resets` by cause, `undecodable` events, events understood but not used, `skipped`,
    by reason, and `contradicted_blocks` that the engine's cached_tokens denied. `orphans` are the blocks kept
    apart now, until the parent they were stored under is known. `prediction_trust`: the share of predicted
    blocks that comes true, as answers have shown. `others_requests` and `others_tokens` are on the rank and
    not this process's own; `engine` is the engine's own word on its load, None while there is none.
    """

    rank: int
    view: str
    why: str = ""
    blocks: dict[str, int] = {}
    predicted_blocks: int = 0
    last_seq: int | None = None
    event_age_seconds: float | None = None
    event_lag_seconds: float | None = None
    shortest_event_lag_seconds: float | None = None
    longest_event_lag_seconds: float | None = None
    gaps: int = 0
    lost_gaps: int = 0
    replays: int = 0
    resets: dict[str, int] = {}
    batches: int = 0
    duplicates: int = 0
    early_batches: int = 0
    events: dict[str, int] = {}
    orphans: int = 0
    undecodable: int = 0
    skipped: dict[str, int] = {}
    contradicted_blocks: int = 0
    prediction_trust: float = 1.0
    others_requests: int = 0
    others_tokens: int = 0
    engine: EngineLoadRow | None = None

    @property
    def engine_requests(self) -> dict[str, int]:
        """The engine's own count by state, none where it says nothing."""
        said = self.engine
        return {} if said is None else {"running": said.running, "waiting": said.waiting}


class EngineLoadRow(msgspec.Struct, kw_only=True, gc=False):
    """A rank's load in the engine's own words, all of it: requests, uncached tokens that wait, and usage.

    `kv_usage`: the share of the KV cache in use, 0 to 1. `by` its load socket or an answer to a question,
    `age_seconds` ago.
    """

    running: int
    waiting: int
    waiting_tokens: int
    kv_usage: float
    by: str
    age_seconds: float


class BreakerRow(msgspec.Struct, kw_only=True, gc=False):
    """A worker's breaker: its state and what brought it there, and how requests have failed.

    `in_a_row`: failures since an answer last began well. Counts are since the worker was added: `failures` by
    kind, `changes` into each state by cause.
    """

    state: str = "closed"
    cause: str = ""
    in_a_row: int = 0
    failures: dict[str, int] = {}
    changes: dict[str, dict[str, int]] = {}


class WorkerRow(msgspec.Struct, kw_only=True, gc=False):
    """One worker: `url` as the operator gave it; `engine` and `model` are None until it has said them.

    `tokens` is where its prompts' token ids come from (`prompts.store` names the modes), `tokens_why` why it
    is not the best. `inflight_requests` and `inflight_tokens` (uncached prompt tokens not yet answered with a
    first token) are what this router has sent there, over all ranks, `peers_requests` and `peers_tokens`
    what other routers have (--share); `answered` requests, the tokens of their prompts and those of them that
    were cached are counts since the worker said who it is. `refusals` counts its own answers 429 and 503; for
    `loaded_seconds` more it counts as having too much to do.
    """

    url: str
    engine: str | None = None
    model: str | None = None
    role: str = "both"
    state: str
    why: str = ""
    tokens: str | None = None
    tokens_why: str = ""
    breaker: BreakerRow = msgspec.field(default_factory=BreakerRow)
    refusals: int = 0
    loaded_seconds: float = 0.0
    inflight_requests: int = 0
    inflight_tokens: int = 0
    peers_requests: int = 0
    peers_tokens: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ranks: list[RankRow] = []


class ShareRow(msgspec.Struct, kw_only=True, gc=False):
    """What is shared with other routers over `channel` (--share); `why` not, while it is not connected.

    `routers`: others that are heard now. Messages, and their bytes, since the start: `sent`, `heard`,
    `dropped` for want of a connection or of room, `lost` on the way to here, and `undecodable` ones.
    """

    channel: str
    connected: bool
    why: str = ""
    routers: int = 0
    sent: int = 0
    sent_bytes: int = 0
    heard: int = 0
    heard_bytes: int = 0
    dropped: int = 0
    lost: int = 0
    undecodable: int = 0


def workers_json(rows: Iterable[WorkerRow], share: ShareRow | None = None) -> bytes:
    """Return the body of GET /workers; with what is shared, where anything is."""
    body = {"workers": list(rows)}
    return msgspec.json.encode(body if share is None else body | {"share": share})
