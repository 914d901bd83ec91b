"""Load told between routers (--share); nothing of it is there without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.observe.definition import NONE, Definition, Read, Scrape, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from router.observe.rows import ShareRow


def shared(values: Callable[[ShareRow], Mapping[tuple[str, ...], float]]) -> Read:
    """Read what is shared with other routers, where anything is."""

    def read(now: Scrape) -> Values:
        row = now.counts.share()
        return values(row).items() if row is not None else []

    return read


SHARE = (
    Definition(
        "gauge",
        "share_connected",
        "",
        NONE,
        "1 while load is shared with other routers, 0 while the server cannot be reached (--share)",
        shared(lambda row: {(): row.connected}),
        merge="min",
    ),
    Definition(
        "gauge",
        "share_routers",
        "routers",
        NONE,
        "Other routers that are heard now",
        shared(lambda row: {(): row.routers}),
        merge="max",
    ),
    Definition(
        "counter",
        "share_messages",
        "messages",
        ("outcome",),
        "Messages between routers: sent, heard, dropped for want of a connection or of room, lost on the way "
        "to here, undecodable",
        shared(
            lambda row: {
                ("sent",): row.sent,
                ("heard",): row.heard,
                ("dropped",): row.dropped,
                ("lost",): row.lost,
                ("undecodable",): row.undecodable,
            }
        ),
    ),
    Definition(
        "counter",
        "share_bytes",
        "bytes",
        ("outcome",),
        "Bytes of the messages sent and heard",
        shared(lambda row: {("sent",): row.sent_bytes, ("heard",): row.heard_bytes}),
    ),
)
