"""What a record is made of: one small array per thing that happened, in the order it happened on the loop.

Times are in seconds: `now` on the loop's monotonic clock, as the router used it; `Session` says what that was
in seconds since the epoch. `rank` is a number that a rank has within its session, `request` likewise. Codes
are u64 LE, eight bytes each (`codes`), four for blocks of one token. A field is only ever added at the end;
anything else is another version of the format.
"""

from __future__ import annotations

from typing import TypeAlias

from router.records.entries.batches import Clear, Removal, Sealed, Store
from router.records.entries.requests import (
    Blocks,
    Chosen,
    Computed,
    Contradicted,
    Ended,
    Over,
    Prompt,
    Ranks,
    Reported,
    Sent,
    Started,
    Trusted,
)
from router.records.entries.states import (
    EngineAsked,
    EngineForgotten,
    EngineSaid,
    Inherited,
    PeersSaid,
    Row,
    Session,
    Views,
    Weighed,
)
from router.records.entries.streams import (
    Applied,
    Completed,
    Connected,
    Damaged,
    Distrusted,
    Expired,
    Forgot,
    Gone,
    Healed,
    Linked,
    Live,
    Opened,
    Ranked,
    Replayed,
    ReplayEnded,
    Reset,
    Swept,
    Ticked,
    Unlinked,
)

Entry: TypeAlias = (
    Session
    | Weighed
    | EngineSaid
    | EngineForgotten
    | EngineAsked
    | Inherited
    | PeersSaid
    | Trusted
    | Ranked
    | Gone
    | Opened
    | Live
    | Replayed
    | ReplayEnded
    | Connected
    | Linked
    | Unlinked
    | Applied
    | Reset
    | Forgot
    | Completed
    | Healed
    | Distrusted
    | Damaged
    | Ticked
    | Expired
    | Swept
    | Ranks
    | Prompt
    | Chosen
    | Sent
    | Computed
    | Started
    | Reported
    | Contradicted
    | Over
    | Ended
    | Views
)

__all__ = [
    "Applied",
    "Blocks",
    "Chosen",
    "Clear",
    "Completed",
    "Computed",
    "Connected",
    "Contradicted",
    "Damaged",
    "Distrusted",
    "Ended",
    "EngineAsked",
    "EngineForgotten",
    "EngineSaid",
    "Entry",
    "Expired",
    "Forgot",
    "Gone",
    "Healed",
    "Inherited",
    "Linked",
    "Live",
    "Opened",
    "Over",
    "PeersSaid",
    "Prompt",
    "Ranked",
    "Ranks",
    "Removal",
    "ReplayEnded",
    "Replayed",
    "Reported",
    "Reset",
    "Row",
    "Sealed",
    "Sent",
    "Session",
    "Started",
    "Store",
    "Swept",
    "Ticked",
    "Trusted",
    "Unlinked",
    "Views",
    "Weighed",
]
