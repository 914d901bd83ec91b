"""A worker that computes nothing, as light as Python can make it: it shares a core with the load.

It answers what routers ask of SGLang, a chat at once, a stream in `max_tokens` chunks, 8 ms apart. As
`prompt_tokens` it reports the request's `seed`: who makes the bodies knows the count, and a router that reads
the counts must not be told another. The id of each chunk is the time at which it was sent, in ns of the
monotonic clock. Both fields, and `stream`, have to stand behind the messages, without spaces; a router may
write the body anew, as sglang-router does, if it keeps to that.
`python -m tests.bench.dummy` prints the port.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any, cast

import uvloop

GAP_SECONDS = 0.008
TAIL_BYTES = 1024
MODEL = "tiny"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SEED = re.compile(rb'"seed":(\d+)')
_CHUNKS = re.compile(rb'"max_(?:completion_)?tokens":(\d+)')
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n"
_STREAM = _HEAD % b"text/event-stream; charset=utf-8" + b"transfer-encoding: chunked\r\n\r\n"
_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"

SAYS: dict[str, dict[str, Any]] = {
    "/v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model", "root": MODEL}]},
    "/server_info": {"model_path": MODEL, "tokenizer_path": MODEL, "dp_size": 1, "kv_events": None},
    "/model_info": {"model_path": MODEL, "tokenizer_path": MODEL, "is_generation": True},
    "/version": {"version": "0.5.23"},
    "/health": {"status": "ok"},
    "/ready": {"status": "ok"},
}
"""What a GET is answered; the older names with `get_` too."""


def _json(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, separators=(",", ":")).encode()
    return _HEAD % b"application/json" + b"content-length: %d\r\n\r\n%b" % (len(text), text)


def _choice(**more: Any) -> dict[str, Any]:
    return {"created": 1, "model": MODEL, "choices": [{"index": 0, **more, "logprobs": None}]}


def _chunk() -> bytes:
    """Return one chunk of a stream, with a place for its time in 16 digits."""
    said = {"object": "chat.completion.chunk", **_choice(delta={"content": " token"}, finish_reason=None)}
    text = b"data: {" + b'"id":"%016d",' + json.dumps(said, separators=(",", ":")).encode()[1:] + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(text % 0), text)


def _short() -> tuple[bytes, bytes]:
    """Return an answer of 64 tokens, in two parts, between which the prompt's tokens are to stand."""
    message = {"role": "assistant", "content": " token" * 64}
    usage = {"prompt_tokens": 123456, "completion_tokens": 64}
    said = {"id": "1", "object": "chat.completion", **_choice(message=message, finish_reason="stop")}
    before, _, after = _json({**said, "usage": usage}).partition(b"123456")
    return before, after


_CHUNK = _chunk()
_SHORT = _short()
_ANSWERS = {path.encode(): _json(said) for path, said in SAYS.items()}
_ANSWERS |= {b"/get_server_info": _ANSWERS[b"/server_info"], b"/get_model_info": _ANSWERS[b"/model_info"]}


class Worker(asyncio.Protocol):
    """One connection, whose client waits for each answer before it asks again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._held = bytearray()
        self._needed = 0
        self._left = 0
        self._tokens = b"0"
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.Transport", transport).write

    def connection_lost(self, _error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return
            data = bytes(self._held)
            self._held.clear()
        end = data.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(data, 0, end) if end > 3 else None
        self._needed = end + int(length[1]) if length else end
        if end <= 3 or len(data) < self._needed:
            self._held += data
        else:
            self._answer(data)

    def _answer(self, data: bytes) -> None:
        method, path, _ = data.split(b" ", 2)
        if method != b"POST":
            self._write(_ANSWERS.get(path.partition(b"?")[0], _NOT_FOUND))
        elif path != b"/v1/chat/completions":
            self._write(_NOT_FOUND)
        else:
            self._chat(data[-TAIL_BYTES:])

    def _chat(self, tail: bytes) -> None:
        seed = _SEED.search(tail)
        self._tokens = seed[1] if seed else b"0"
        if b'"stream":true' not in tail:
            self._write(_SHORT[0] + self._tokens.rjust(6) + _SHORT[1])
            return
        chunks = _CHUNKS.search(tail)
        self._left = int(chunks[1]) - 1 if chunks else 0
        self._write(_STREAM + _CHUNK % time.monotonic_ns())
        self._timer = self._loop.call_later(GAP_SECONDS, self._next)

    def _next(self) -> None:
        if self._left:
            self._left -= 1
            self._write(_CHUNK % time.monotonic_ns())
            self._timer = self._loop.call_later(GAP_SECONDS, self._next)
        else:
            text = b'data: {"choices":[],"usage":{"prompt_tokens":%b}}\n\n' % self._tokens
            self._write(b"%x\r\n%b\r\n%b" % (len(text), text, _END))


async def serve() -> None:
    """Answer until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Worker(loop), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
