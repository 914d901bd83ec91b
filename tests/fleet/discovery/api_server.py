"""The two calls of a Kubernetes API server that matter here, over real HTTP: list in pages, and watch.

It keeps a history of changes that can be cut off (410 Gone), and can be slow, refuse tokens, break watches,
send bookmarks, and speak TLS.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

Object = dict[str, Any]


@dataclass(slots=True)
class ApiServer:
    """`token`: the one that is accepted, None for any. `answers`: statuses for the next requests, then 200.

    `refused_namespaces` answer 403. `lists` may proceed while set. `page`: most items that one list gives.
    """

    url: str = ""
    token: str | None = None
    answers: list[int] = field(default_factory=list)
    refused_namespaces: set[str] = field(default_factory=set)
    lists: asyncio.Event = field(default_factory=asyncio.Event)
    page: int = 500
    requests: list[str] = field(default_factory=list)
    objects: dict[str, Object] = field(default_factory=dict)
    watchers: set[_Watcher] = field(default_factory=set)
    version: int = 100
    _history: list[tuple[int, str, Object]] = field(default_factory=list)
    _oldest: int = 0

    def put(self, new: Object) -> None:
        """Create an object, or change it."""
        kind = "MODIFIED" if new["metadata"]["uid"] in self.objects else "ADDED"
        self.objects[new["metadata"]["uid"]] = new
        self._happen(kind, new)

    def delete(self, uid: str) -> None:
        """Let an object be gone."""
        self._happen("DELETED", self.objects.pop(uid))

    def bookmark(self) -> None:
        """Tell watchers of the present version, and of nothing else."""
        self.version += 1
        for watcher in self.watchers:
            watcher.send("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(self.version)}})

    def forget(self) -> None:
        """Forget all changes until now: a watch from before is answered with 410."""
        self._oldest = self.version

    def cut(self) -> None:
        """Break all watches, as a server that is killed would."""
        for watcher in list(self.watchers):
            watcher.writer.transport.abort()

    def end(self) -> None:
        """End all watches in good order, and close their connections."""
        for watcher in list(self.watchers):
            watcher.writer.write(b"0\r\n\r\n")
            watcher.writer.close()

    def expire(self) -> None:
        """End all watches with an ERROR event: their version is too old."""
        for watcher in list(self.watchers):
            watcher.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})

    def babble(self, size: int) -> None:
        """Send watchers so many bytes of a line that does not end."""
        for watcher in self.watchers:
            watcher.writer.write(b"%x\r\n" % size + b" " * size + b"\r\n")

    def said(self, part: str) -> int:
        """Return how many requests had something in their target."""
        return sum(part in target for target in self.requests)

    def _happen(self, kind: str, what: Object) -> None:
        self.version += 1
        what["metadata"]["resourceVersion"] = str(self.version)
        self._history.append((self.version, kind, json.loads(json.dumps(what))))
        for watcher in self.watchers:
            if watcher.takes(what):
                watcher.send(kind, what)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if not await self._answer(head.decode(), reader, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        target = head.split(" ", 2)[1]
        self.requests.append(target)
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        status = self._status(head, parts.path)
        if status != 200:
            _write(writer, status, {"kind": "Status", "code": status, "message": "as the test wants"})
            return True
        if "watch" in query:
            await self._watch(parts.path, query, reader, writer)
            return False
        await self.lists.wait()
        found = [each for each in self.objects.values() if _in(parts.path, each)]
        start = int(query.get("continue", "0"))
        end = start + min(self.page, int(query["limit"]))
        meta = {"resourceVersion": str(self.version), "continue": str(end) if end < len(found) else ""}
        _write(writer, 200, {"kind": "List", "metadata": meta, "items": found[start:end]})
        return True

    def _status(self, head: str, path: str) -> int:
        if self.token is not None and f"authorization: Bearer {self.token}\r\n" not in head:
            return 401
        if any(f"/namespaces/{name}/" in path for name in self.refused_namespaces):
            return 403
        return self.answers.pop(0) if self.answers else 200

    async def _watch(
        self, path: str, query: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        since = int(query["resourceVersion"])
        if since < self._oldest:
            _write(writer, 410, {"kind": "Status", "code": 410})
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        watcher = _Watcher(path, writer)
        for version, kind, what in self._history:
            if version > since and watcher.takes(what):
                watcher.send(kind, what)
        self.watchers.add(watcher)
        try:
            await reader.read()
        finally:
            self.watchers.discard(watcher)


@dataclass(slots=True, eq=False)
class _Watcher:
    path: str
    writer: asyncio.StreamWriter

    def takes(self, what: Object) -> bool:
        return _in(self.path, what)

    def send(self, kind: str, what: Object) -> None:
        """Send one event, in two pieces."""
        line = json.dumps({"type": kind, "object": what}).encode() + b"\n"
        for piece in (line[:40], line[40:]):
            self.writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")


def _in(path: str, what: Object) -> bool:
    return "/namespaces/" not in path or f"/namespaces/{what['metadata']['namespace']}/" in path


def _write(writer: asyncio.StreamWriter, status: int, body: Object) -> None:
    raw = json.dumps(body).encode()
    writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw)


@asynccontextmanager
async def api_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiServer]:
    """Run one on a port of its own."""
    api = ApiServer()
    api.lists.set()
    server = await asyncio.start_server(api.handle, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    api.url = f"https://localhost:{port}" if tls is not None else f"http://127.0.0.1:{port}"
    try:
        yield api
    finally:
        server.close()
        api.cut()


def pod(
    uid: str,
    ip: str = "127.0.0.1",
    port: int = 8000,
    *,
    ready: bool = True,
    namespace: str = "ns",
    phase: str = "Running",
    deleted: bool = False,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    """Return a pod as the API shows it, with two declared ports."""
    meta: Object = {"name": f"pod-{uid}", "namespace": namespace, "uid": uid}
    meta |= {"labels": {"app": "vllm"} | (labels or {}), "annotations": annotations}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ports = [{"name": "http", "containerPort": port}, {"name": "metrics", "containerPort": 9090}]
    return {
        "metadata": meta,
        "spec": {"containers": [{"name": "engine", "ports": ports}, {"name": "sidecar"}]},
        "status": {
            "phase": phase,
            "podIP": ip,
            "podIPs": [{"ip": ip}] if ip else None,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def endpoint(uid: str, *addresses: str, ready: bool | None = True, terminating: bool = False) -> Object:
    """Return one endpoint of a slice."""
    return {
        "addresses": list(addresses),
        "conditions": {"ready": ready, "serving": True, "terminating": terminating},
        "targetRef": {"kind": "Pod", "uid": uid, "name": f"pod-{uid}"},
    }


def endpoint_slice(name: str, port: int, *endpoints: Object, labels: dict[str, str] | None = None) -> Object:
    """Return an EndpointSlice as the API shows it."""
    meta: Object = {"name": name, "namespace": "ns", "uid": f"slice-{name}", "labels": labels}
    ports = [{"name": "http", "port": port, "protocol": "TCP"}]
    return {"metadata": meta, "addressType": "IPv4", "endpoints": list(endpoints), "ports": ports}
