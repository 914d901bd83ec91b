from __future__ import annotations

import msgspec

from router.observe.rows import RankRow, ShareRow, WorkerRow, workers_json


def test_a_worker_is_shown_with_exactly_these_keys() -> None:
    row = WorkerRow(
        url="http://a:1", engine="sglang", model="m", state="ready", ranks=[RankRow(rank=0, view="live")]
    )
    assert msgspec.json.decode(workers_json([row])) == {
        "workers": [
            {
                "url": "http://a:1",
                "engine": "sglang",
                "model": "m",
                "role": "both",
                "state": "ready",
                "why": "",
                "tokens": None,
                "tokens_why": "",
                "breaker": {"state": "closed", "cause": "", "in_a_row": 0, "failures": {}, "changes": {}},
                "refusals": 0,
                "loaded_seconds": 0.0,
                "inflight_requests": 0,
                "inflight_tokens": 0,
                "peers_requests": 0,
                "peers_tokens": 0,
                "answered": 0,
                "prompt_tokens": 0,
                "cached_tokens": 0,
                "ranks": [
                    {
                        "rank": 0,
                        "view": "live",
                        "why": "",
                        "blocks": {},
                        "predicted_blocks": 0,
                        "last_seq": None,
                        "event_age_seconds": None,
                        "event_lag_seconds": None,
                        "shortest_event_lag_seconds": None,
                        "longest_event_lag_seconds": None,
                        "gaps": 0,
                        "lost_gaps": 0,
                        "replays": 0,
                        "resets": {},
                        "batches": 0,
                        "duplicates": 0,
                        "early_batches": 0,
                        "events": {},
                        "orphans": 0,
                        "undecodable": 0,
                        "skipped": {},
                        "contradicted_blocks": 0,
                        "prediction_trust": 1.0,
                        "others_requests": 0,
                        "others_tokens": 0,
                        "engine": None,
                    }
                ],
            }
        ]
    }


def test_what_is_shared_is_shown_where_anything_is() -> None:
    shown = msgspec.json.decode(workers_json([], ShareRow(channel="c", connected=False, why="refused")))
    assert (shown["workers"], shown["share"]["why"], shown["share"]["routers"]) == ([], "refused", 0)
