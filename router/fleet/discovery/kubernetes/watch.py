"""One list of objects, kept as it is at the API server: list, then watch, for ever.

Whatever goes wrong, the objects stay what they were until a list or a watch has said otherwise, and the
server is asked again after a pause that grows to some seconds. A failure is said once, and so is its end.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from router.errors import UpstreamFailed
from router.fleet.discovery.kubernetes.credentials import authorization, trust
from router.fleet.discovery.kubernetes.objects import Bookmark, EndpointSlice, Event, Page, Pod, Status
from router.proxy.fetch import fetch
from router.proxy.limits import Limits
from router.proxy.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.fleet.discovery.kubernetes.settings import Api
    from router.proxy.headers import Field
    from router.proxy.response import Response

Seen = TypeVar("Seen", bound=Pod | EndpointSlice)
T = TypeVar("T")

# A list of thousands of pods can take an overloaded server long. In seconds.
LIST_SECONDS = 120.0
# How long one watch goes on. A connection that died unheard is noticed by then; a new watch costs one
# request.
WATCH_SECONDS = 60
_LATE_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_PAGE_ITEMS = 500
# More than any object's; the server itself takes none over 1.5 MiB or so.
_MOST_LINE_BYTES = 16 * 1024 * 1024
_OK, _UNAUTHORIZED, _FORBIDDEN, _GONE = 200, 401, 403, 410
_CURES = {
    _UNAUTHORIZED: "the token is not accepted",
    _FORBIDDEN: "the service account needs get, list and watch on them",
}
_log = logging.getLogger(__name__)


class _Gone(Exception):
    """The version to watch from is no longer known: list anew."""


class Watch(Generic[Seen]):
    """`tell` is called whenever `objects`, by uid or name, have changed. `path` is that of their list."""

    def __init__(
        self, api: Api, path: str, selector: str, kind: type[Seen], tell: Callable[[], None]
    ) -> None:
        self.objects: dict[str, Seen] = {}
        self._api = api
        self._path = path
        self._selector = selector
        self._kind = kind
        self._tell = tell
        self._upstream: Upstream | None = None
        self._version = ""
        self._pause = _FIRST_PAUSE
        self._failure = ""
        self._random = Random()

    @property
    def failing(self) -> bool:
        """Whether the server does not answer as it should."""
        return bool(self._failure)

    async def run(self) -> None:
        """Follow the objects until cancelled; a run after another begins with a list."""
        self._version = ""
        try:
            while True:
                await self._turn()
        finally:
            await self._hang_up()

    async def _turn(self) -> None:
        """List if need be, and watch once."""
        try:
            if not self._version:
                await self._list()
            if await self._watch():
                return
        except _Gone:
            self._version = ""
        except UpstreamFailed as error:
            self._failed(error.message)
            await self._hang_up()
        await asyncio.sleep(self._pause * self._random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    async def _list(self) -> None:
        objects: dict[str, Seen] = {}
        page = await self._page("")
        while True:
            for found in filter(None, map(self._object, page.items or ())):
                objects[_key(found)] = found
            if not page.metadata.continue_:
                break
            page = await self._page(page.metadata.continue_)
        self.objects, self._version = objects, page.metadata.resource_version
        self._succeeded()
        self._tell()

    async def _page(self, start: str) -> Page:
        target = self._target(limit=str(_PAGE_ITEMS), **({"continue": start} if start else {}))
        headers, upstream = await self._headers(), await self._connected()
        reply = await fetch(upstream, "GET", target.decode(), headers=headers, timeout=LIST_SECONDS)
        self._check(reply.status, reply.body)
        return self._decoded(reply.body, Page)

    async def _watch(self) -> bool:
        """Watch until the server ends it; say whether that took long enough to go on at once."""
        target = self._target(
            watch="1",
            resourceVersion=self._version,
            allowWatchBookmarks="true",
            timeoutSeconds=str(WATCH_SECONDS),
        )
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(WATCH_SECONDS + _LATE_SECONDS):
                await self._follow(target)
        except TimeoutError:
            raise UpstreamFailed("a watch did not end in time") from None
        return loop.time() - began >= 1.0

    async def _follow(self, target: bytes) -> None:
        response = await self._asked(target)
        try:
            if response.status != _OK:
                self._check(response.status, await response.read_all(_MOST_LINE_BYTES))
            self._succeeded()
            rest = b""
            while piece := await response.read():
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > _MOST_LINE_BYTES:
                    raise UpstreamFailed("a watch brings a line without end")
                self._apply(lines)
        finally:
            response.close()

    async def _asked(self, target: bytes) -> Response:
        """Ask, once more if the connection had been closed while it was idle."""
        headers, upstream = await self._headers(), await self._connected()
        try:
            return await upstream.request(b"GET", target, headers)
        except UpstreamFailed as failure:
            if not failure.stale:
                raise
        return await upstream.request(b"GET", target, headers, fresh=True)

    def _apply(self, lines: list[bytes]) -> None:
        """Take in what has happened; tell of all of it at once."""
        changed = False
        try:
            for line in filter(None, lines):
                changed |= self._happened(self._decoded(line, Event))
        finally:
            if changed:
                self._tell()

    def _happened(self, event: Event) -> bool:
        """Take in one event; say whether it has changed the objects."""
        if event.type == "ERROR":
            status = self._decoded(event.object, Status)
            if status.code == _GONE:
                raise _Gone
            raise UpstreamFailed(f"a watch ends with {status.code}: {status.message:.200}")
        if event.type == "BOOKMARK":
            self._version = self._decoded(event.object, Bookmark).metadata.resource_version
            return False
        found = self._object(event.object)
        read = found or self._decoded(event.object, Bookmark)
        if found is None or event.type == "DELETED":
            self.objects.pop(_key(read), None)
        else:
            self.objects[_key(found)] = found
        self._version = read.metadata.resource_version
        self._pause = _FIRST_PAUSE
        return True

    async def _connected(self) -> Upstream:
        """Return the connections; Raises UpstreamFailed while the authority's file cannot be used."""
        if self._upstream is None:
            self._upstream = Upstream(self._api.url, limits=Limits(), tls=await trust(self._api))
        return self._upstream

    async def _hang_up(self) -> None:
        """Close the connections: the next ones are made with the authority's file as it is then."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            await upstream.close()

    async def _headers(self) -> list[Field]:
        """Return the headers of a request, with the token as its file has it now: it is replaced hourly."""
        headers = [(b"accept", b"application/json"), (b"user-agent", b"kv-router")]
        return headers + await authorization(self._api)

    def _target(self, **query: str) -> bytes:
        if self._selector:
            query["labelSelector"] = self._selector
        return f"{self._path}?{urlencode(query)}".encode()

    def _check(self, status: int, body: bytes) -> None:
        """Raise what an answer that is none means; its own message is shown as far as it has one."""
        if status == _GONE:
            raise _Gone
        if status != _OK:
            why = _CURES.get(status) or _message(body)
            raise UpstreamFailed(f"it answers {status}{f' ({why})' if why else ''}")

    def _object(self, raw: msgspec.Raw) -> Seen | None:
        """Return an object, None for one that is not what it should be, but for what it is called."""
        try:
            return self._decoded(raw, self._kind)
        except UpstreamFailed as error:
            meta = self._decoded(raw, Bookmark).metadata
            _log.error("discovery: %s/%s: %s; it is left out", meta.namespace, meta.name, error.message)
            return None

    def _decoded(self, raw: bytes | msgspec.Raw, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamFailed(f"an answer is not what it should be: {error}") from None

    def _failed(self, message: str) -> None:
        why = message.replace("the worker", "the API server")
        if why != self._failure:
            _log.error("discovery: %s%s: %s; the workers stay what they were", self._api.url, self._path, why)
        self._failure = why

    def _succeeded(self) -> None:
        if self._failure:
            _log.info("discovery: %s%s answers again", self._api.url, self._path)
        self._failure = ""


def _message(body: bytes) -> str:
    try:
        return f"{msgspec.json.decode(body, type=Status).message:.200}"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _key(found: Pod | EndpointSlice | Bookmark) -> str:
    return found.metadata.uid or f"{found.metadata.namespace}/{found.metadata.name}"
