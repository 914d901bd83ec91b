"""From the head of a request to the cycle that serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.proxy.asgi import asgi_cycle
from router.proxy.check import (
    NO_HOST,
    Refused,
    check_coding,
    check_expectation,
    is_host,
    spoken_version,
)
from router.proxy.cycle import Cycle
from router.proxy.target import read_target

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from router.proxy.edge import EdgeProtocol


def check_field(edge: EdgeProtocol, name: bytes, value: bytes) -> None:
    """Check a field that must be looked at, other than a first and valid Host; raises Refused."""
    if name == b"host":
        raise Refused(NO_HOST)
    if name == b"expect":
        check_expectation(value)
        edge.expect_100_continue = True
    else:
        check_coding(value, edge.headers, edge.parser.get_http_version())


def made_cycle(edge: EdgeProtocol) -> Cycle | RequestResponseCycle:
    """Return the cycle of the request whose head has just been read; raises Refused."""
    parser = edge.parser
    version = parser.get_http_version()
    if version != "1.1":
        version = spoken_version(version)
    http10 = version == "1.0"
    if edge.host is None and not http10:
        raise Refused(NO_HOST)
    path, raw_path, query, target, authority = read_target(edge.url)
    if authority is not None:
        _take_authority(edge, authority)
    method = parser.get_method()
    keep_alive = not http10 and parser.should_keep_alive()
    handler = edge.handler(method, path)
    if handler is None:
        return asgi_cycle(edge, method, path, raw_path, query, version, keep_alive=keep_alive)
    return Cycle(
        handler,
        edge.loop,
        edge.transport,
        edge.flow,
        edge.on_response_complete,
        edge.sender,
        method=method,
        target=target,
        headers=edge.headers,
        http10=http10,
        keep_alive=keep_alive,
        expects_100=edge.expect_100_continue and not http10,
    )


def _take_authority(edge: EdgeProtocol, authority: bytes) -> None:
    """Take the host of an absolute URI for that of the request (RFC 9112, 3.2.2)."""
    if not is_host(authority):
        raise Refused(NO_HOST)
    edge.headers = [(b"host", authority), *(field for field in edge.headers if field[0] != b"host")]
