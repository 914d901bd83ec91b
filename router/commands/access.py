"""The router that a command asks: one connection, and errors that say what to do in one line."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLCertVerificationError, SSLError
from typing import TYPE_CHECKING

import msgspec

from router.discreet import discreet
from router.errors import CommandFailed, ConfigError, UpstreamFailed, UpstreamTimeout
from router.proxy.fetch import REPLY_BYTES
from router.proxy.limits import Limits
from router.proxy.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.proxy.response import Response

_SECONDS = 10.0
_OK, _DENIED, _BARRED, _NOT_FOUND = 200, 401, 403, 404


@dataclass(frozen=True, slots=True)
class Access:
    """A router's URL, and the key for it, which is in no text that is made of this."""

    url: str
    key: str | None = field(default=None, repr=False)


@asynccontextmanager
async def router_at(access: Access) -> AsyncIterator[Router]:
    """Yield the router. Raises CommandFailed; ConfigError for a URL that is none."""
    limits = Limits(connect_seconds=_SECONDS, first_byte_seconds=_SECONDS, idle_seconds=_SECONDS)
    try:
        upstream = Upstream(access.url.rstrip("/"), limits=limits, key=_checked(access.key))
    except ConfigError:
        raise ConfigError(f"--url: expected http://host:port, got {discreet(access.url)!r:.200}") from None
    try:
        yield Router(access.url, upstream)
    except UpstreamTimeout:
        raise CommandFailed(f"{access.url} does not answer within {_SECONDS:g} s") from None
    except UpstreamFailed as failure:
        raise CommandFailed(f"{access.url} {_why(failure)}") from None
    finally:
        await upstream.close()


def _why(failure: UpstreamFailed) -> str:
    """Return what keeps a router from being asked."""
    if isinstance(failure.__cause__, SSLCertVerificationError):
        why = failure.__cause__.verify_message
        return f"has a certificate that is not believed ({why}): SSL_CERT_FILE names a file of who is"
    if isinstance(failure.__cause__, SSLError):
        return "does not speak TLS: is it http:// there?"
    return "closes its connections" if failure.sent else "takes no connection: is a router up there?"


class Router:
    """Asks; an answer that is no success is CommandFailed."""

    def __init__(self, url: str, upstream: Upstream) -> None:
        self.url = url
        self._upstream = upstream

    async def get(self, path: str) -> bytes:
        """Return the body of an answer."""
        return await self._whole(await self.open(path))

    async def post(self, path: str, body: bytes) -> bytes:
        """Return the body of an answer to a JSON body."""
        fields = [(b"content-type", b"application/json")]
        return await self._whole(await self._upstream.request(b"POST", path.encode(), fields, body))

    async def open(self, path: str) -> Response:
        """Return an answer that may have no end; whoever gets it must close it."""
        return await self._upstream.request(b"GET", path.encode(), [])

    async def _whole(self, response: Response) -> bytes:
        try:
            body = await response.read_all(REPLY_BYTES)
        finally:
            response.close()
        if response.status != _OK:
            raise self.refusal(response.status, body)
        return body

    def refusal(self, status: int, body: bytes) -> CommandFailed:
        """Return what an answer says that is no success."""
        if status == _DENIED:
            return CommandFailed(f"{self.url} asks for a valid key: give --key or KV_ROUTER_KEY")
        if status == _BARRED and b'"host_not_allowed"' in body:
            why = "does not answer to this name: ask by address, or give the router --allowed-host NAME"
            return CommandFailed(f"{self.url} {why}")
        if status == _NOT_FOUND and b'"no_route"' in body:
            return CommandFailed(f"{self.url} is a router of another version: it has no such route")
        message = _message(body)
        if message is None:
            return self.stranger()
        return CommandFailed(f"{self.url} answers {status}: {message}")

    def stranger(self) -> CommandFailed:
        """Return what is to be said of answers that no router gives."""
        return CommandFailed(f"{self.url} does not answer as a kv-router does")


def _message(body: bytes) -> str | None:
    try:
        message = msgspec.json.decode(body)["error"]["message"]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return None
    return message if isinstance(message, str) else None


def _checked(key: str | None) -> str | None:
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key and key):
        raise ConfigError("--key: expected characters without spaces, got another value")
    return key
