"""What the head of a request must be, beyond what llhttp sees to.

llhttp takes heads strictly: no bare LF, no folded fields, no spaces before a colon, no two lengths, no
length beside a coding. Here is what it lets pass and a router must not: whoever stands before it, or behind
it, might read the same bytes as another request (RFC 9112, 11.2).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import httptools
import msgspec

from router.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.proxy.headers import Field

Refusal = tuple[bytes, str]  # status line's end, and what the client is told

GARBLED = b"400 Bad Request", "the request is not HTTP/1.1"
NO_HOST = b"400 Bad Request", "expected one valid Host header"
_CODING = b"400 Bad Request", "Transfer-Encoding: expected chunked, once and last"
_OLD_CODING = b"400 Bad Request", "Transfer-Encoding is not part of HTTP/1.0"
_UNKNOWN_CODING = b"501 Not Implemented", "Transfer-Encoding: only chunked is supported"
_EXPECTATION = b"417 Expectation Failed", "Expect: only 100-continue is supported"
_METHOD = b"501 Not Implemented", "the method is not supported"
_VERSION = b"505 HTTP Version Not Supported", "expected HTTP/1.1"

_CODES = {
    b"408": "request_timeout",
    b"414": "uri_too_long",
    b"431": "headers_too_large",
    b"501": "not_supported",
    b"505": "not_supported",
}

# Fields that `EdgeProtocol` looks at one by one.
LOOKED_AT = frozenset({b"host", b"expect", b"transfer-encoding"})

# RFC 3986, 3.2.2 and 3.2.3, without user information and, as nginx has it, without empty labels.
_LABELS = rb"[\w!$&'()*+,;=~%-]+(?:\.[\w!$&'()*+,;=~%-]+)*\.?"
_IS_HOST = re.compile(rb"(?:%b|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?" % _LABELS)
_REQUEST_LINE = re.compile(rb"[A-Za-z][\w!#$%&'*+.^`|~-]* [!-~]+ HTTP/1\.[0-9]\r?\n")


class Refused(Exception):
    """A head that must not be served; `refusal` says what to answer."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal[1])
        self.refusal = refusal


@lru_cache(maxsize=1024)
def is_host(value: bytes) -> bool:
    """Whether a Host field, of which there must be one (RFC 9112, 3.2), is valid."""
    return _IS_HOST.fullmatch(value) is not None


def check_coding(value: bytes, fields: Iterable[Field], version: str) -> None:
    """Raise Refused for a body that is not chunked and nothing else (RFC 9112, 6.1); `fields` came before."""
    if version == "1.0":
        raise Refused(_OLD_CODING)
    if any(name == b"transfer-encoding" for name, _ in fields):
        raise Refused(_CODING)
    codings = [coding.strip() for coding in value.lower().split(b",")]
    if codings[-1] != b"chunked" or codings.count(b"chunked") > 1 or b"" in codings:
        raise Refused(_CODING)
    if len(codings) > 1:
        raise Refused(_UNKNOWN_CODING)


def check_expectation(value: bytes) -> None:
    """Raise Refused for anything but 100-continue."""
    if value.lower() != b"100-continue":
        raise Refused(_EXPECTATION)


def spoken_version(version: str) -> str:
    """Return the version to answer in, 1.0 or 1.1; higher minor versions are read as 1.1 (RFC 9110, 2.5)."""
    if version[:2] != "1.":
        raise Refused(_VERSION)
    return "1.0" if version == "1.0" else "1.1"


def refusal_body(status: bytes, message: str) -> bytes:
    """Return what to tell a client, as an OpenAI-style error object."""
    error = BadRequest(message).as_dict()
    error["error"]["code"] = _CODES.get(status[:3], BadRequest.code)
    return msgspec.json.encode(error)


def refusal_of(error: httptools.HttpParserError, data: bytes) -> Refusal:
    """Return what to answer when the parser has failed in the middle of a read."""
    cause = error.__context__
    if isinstance(cause, Refused):
        return cause.refusal
    unknown = isinstance(error, httptools.HttpParserInvalidMethodError)
    return _METHOD if unknown and _REQUEST_LINE.match(data) else GARBLED
