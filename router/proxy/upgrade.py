"""Reading on behind a head that asks for an upgrade.

Upgrades are not offered, so asking for one changes nothing (RFC 9110, 7.8). httptools takes such a head for
the end of HTTP: what follows would be read by nobody, or as something else by whoever comes next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httptools

from router.proxy.check import refusal_of
from router.proxy.pace import TOO_LARGE

if TYPE_CHECKING:
    from router.proxy.edge import EdgeProtocol


def read_leniently(parser: httptools.HttpRequestParser) -> None:
    """Have a parser pass over what comes behind a last request, as uvicorn does, and leave versions to us."""
    parser.set_dangerous_leniencies(lenient_data_after_close=True, lenient_version=True)


def ignore_upgrade(edge: EdgeProtocol, data: memoryview, end: int) -> None:
    """Read the head anew as if it had not asked, then the rest of `data`, in which it ends at `end`."""
    try:
        while True:
            if edge.parser.get_method() == b"CONNECT":
                edge.refuse(b"400 Bad Request", "CONNECT is not supported")
                return
            head = _head_without_upgrade(edge)
            if len(head) > edge.limits.head_bytes:
                edge.refuse(*TOO_LARGE)
                return
            data = data[end:]
            edge.parser = httptools.HttpRequestParser(edge)
            read_leniently(edge.parser)
            edge.parser.feed_data(head)
            try:
                edge.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                end = upgrade.args[0]
            else:
                return
    except httptools.HttpParserError as error:
        edge.refuse(*refusal_of(error, b""))


def _head_without_upgrade(edge: EdgeProtocol) -> bytes:
    method, version = edge.parser.get_method(), edge.parser.get_http_version().encode()
    lines = [b"%b %b HTTP/%b" % (method, edge.url, version)]
    lines += [b"%b: %b" % field for field in edge.headers if field[0] != b"upgrade"]
    return b"\r\n".join([*lines, b"", b""])
