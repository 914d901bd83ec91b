"""`python -m tests.bench [name ...]`: print the benchmark tables, all of them or those named."""

from __future__ import annotations

import sys

from tests.bench import (
    agreement,
    bodies,
    decide,
    decision,
    ingest,
    latency,
    match,
    memory,
    peers,
    prompts,
    reset,
    scrape,
    share,
    workers,
)

TABLES = {
    "decision": decision.main,
    "decide": decide.main,
    "match": match.main,
    "ingest": ingest.main,
    "latency": latency.main,
    "memory": memory.main,
    "reset": reset.main,
    "prompts": prompts.main,
    "scrape": scrape.main,
    "share": share.main,
    "peers": peers.main,
    "bodies": bodies.main,
    "workers": workers.main,
    "agreement": agreement.main,
}

if __name__ == "__main__":
    names = sys.argv[1:] or list(TABLES)
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        sys.exit(f"unknown table {unknown[0]!r}: expected {', '.join(TABLES)}")
    for name in names:
        print(f"\n## {name}\n")
        TABLES[name]()
