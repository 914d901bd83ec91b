"""Clients' keys: who may ask, and how much. Of a key only a digest is kept, and nothing of it is ever shown.

A file of keys has one on each line, with what is to be said of its client behind it:

    # comments and empty lines do not count
    sk-8c1f0e7d2b9a
    sk-51d6b8e3f0c4  name=batch  requests-per-second=5  burst=20  prompt-tokens-per-minute=200000
    sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  name=search

Lines with the same name are one client, with one set of limits: an old key and the one that replaces it. For
a key itself its SHA-256 can stand. Without a name a client is called by the beginning of that digest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Protocol

from router.core.bucket import Bucket
from router.errors import ConfigError, RateLimited
from router.proxy.forwarding import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from router.proxy.headers import Field

    Keys = Mapping[bytes, tuple[str, "ClientLimits"]]
    MakeBucket = Callable[[str, float, float], "AnyBucket"]

KEY = r"[!-~]{8,}"
_NAME = re.compile(r"[\w.:@/-]{1,64}", re.ASCII)
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
_SETTINGS = ("name", "requests-per-second", "burst", "prompt-tokens-per-minute")
_BEARER = b"bearer "
_AUTHORIZATION = b"authorization"


class AnyBucket(Protocol):
    """What a limit is counted in: this process's own, or one of all processes."""

    def take(self, amount: float, now: float) -> float:
        """See `Bucket.take`."""


def own_bucket(_: str, rate: float, burst: float) -> AnyBucket:
    """Return a bucket of this process's own."""
    return Bucket(rate, burst)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What one client may use; 0 is without a limit. `burst`: requests at once."""

    requests_per_second: float = 0.0
    burst: float = 0.0
    prompt_tokens_per_minute: float = 0.0


class Client:
    """One client, by name, and what it has used; `limited` counts the requests that were too many."""

    __slots__ = ("_prompt_tokens", "_requests", "admitted", "limited", "limits", "name")

    def __init__(self, name: str, limits: ClientLimits, bucket: MakeBucket) -> None:
        self.name = name
        self.limits = limits
        rate, burst, tokens = limits.requests_per_second, limits.burst, limits.prompt_tokens_per_minute
        self._requests = bucket(f"requests {name}", rate, burst or max(1.0, rate)) if rate else None
        self._prompt_tokens = bucket(f"prompt-tokens {name}", tokens / 60, tokens) if tokens else None
        self.admitted = self.limited = 0

    def take_request(self, clock: Callable[[], float]) -> None:
        """Count a request; raises RateLimited for one too many."""
        if self._requests is not None:
            self._take(self._requests, 1, clock(), "requests")
        self.admitted += 1

    def take_prompt(self, tokens: int, clock: Callable[[], float]) -> None:
        """Count a prompt's tokens; raises RateLimited for too many."""
        if self._prompt_tokens is not None:
            self._take(self._prompt_tokens, tokens, clock(), "prompt tokens")

    def _take(self, bucket: AnyBucket, amount: int, now: float, what: str) -> None:
        wait = bucket.take(amount, now)
        if wait:
            self.limited += 1
            raise RateLimited(f"too many {what} with this key", retry_after=int(wait) + 1)


class Keyring:
    """The clients that there are, by their keys' digests; `bucket` makes what their limits are counted in."""

    __slots__ = ("_bucket", "_clients")

    def __init__(self, bucket: MakeBucket = own_bucket) -> None:
        self._bucket = bucket
        self._clients: Mapping[bytes, tuple[bytes, Client]] = {}

    def client_of(self, fields: Iterable[Field]) -> Client | None:
        """Return who a request's `Authorization: Bearer` or `x-api-key` belongs to. About 1 us.

        How long it takes says nothing of any key: what is looked up and compared is a digest.
        """
        for digest in given(fields):
            found = self._clients.get(digest)
            if found is not None and compare_digest(found[0], digest):
                return found[1]
        return None

    def hold(self, keys: Keys) -> None:
        """Hold these keys and no others; a client that stays as it was keeps its count."""
        known = {client.name: client for client in self.clients()}
        for name, limits in keys.values():
            if name not in known or known[name].limits != limits:
                known[name] = Client(name, limits, self._bucket)
        self._clients = {digest: (digest, known[name]) for digest, (name, _) in keys.items()}

    def clients(self) -> list[Client]:
        """Return every client once."""
        return list({client.name: client for _, client in self._clients.values()}.values())


def given(fields: Iterable[Field]) -> Iterator[bytes]:
    """Yield the digests of the keys that a request has: `Authorization: Bearer` in any case, `x-api-key`."""
    for field in fields:
        name = field[0]
        if name in CREDENTIALS:
            value = field[1]
            if name == _AUTHORIZATION:
                if value[:7].lower() != _BEARER:
                    continue
                value = value[7:].strip()
            yield sha256(value).digest()


def read_keys(text: str, keys: dict[bytes, tuple[str, ClientLimits]], source: str) -> None:
    """Add the keys of a file; raises ConfigError naming the line, and never what stands on it."""
    named = dict(keys.values())
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            try:
                _add(words, keys, named)
            except ValueError as error:
                raise ConfigError(f"{source}:{number}: {error}") from None


def _add(
    words: list[str], keys: dict[bytes, tuple[str, ClientLimits]], named: dict[str, ClientLimits]
) -> None:
    digest = digest_of(words[0])
    name, limits = _said(words[1:], digest)
    if digest in keys:
        raise ValueError("the key is given twice")
    if named.setdefault(name, limits) != limits:
        raise ValueError(f"there is another {name} with other limits")
    keys[digest] = name, limits


def digest_of(word: str) -> bytes:
    """Return the digest of a key, or the one that stands for it; raises ValueError for what is no key."""
    found = _DIGEST.fullmatch(word)
    if found:
        return bytes.fromhex(found[1])
    if not re.fullmatch(KEY, word):
        raise ValueError("expected a key of 8 or more visible ASCII characters")
    return sha256(word.encode()).digest()


def default_name(digest: bytes) -> str:
    """Return what a client without a name is called."""
    return f"key-{digest.hex()[:8]}"


def _said(words: list[str], digest: bytes) -> tuple[str, ClientLimits]:
    """Return the name and the limits that stand behind a key."""
    said: dict[str, str] = {}
    for word in words:
        setting, equals, value = word.partition("=")
        if not equals or setting not in _SETTINGS or setting in said:
            raise ValueError(f"expected {', '.join(f'{name}=...' for name in _SETTINGS)}, each at most once")
        said[setting] = value
    name = said.get("name", default_name(digest))
    if not _NAME.fullmatch(name):
        raise ValueError("name: expected up to 64 letters, digits or any of . : @ / _ -")
    rate, burst, tokens = (_number(setting, said.get(setting, "0")) for setting in _SETTINGS[1:])
    if burst and (not rate or burst < 1):
        raise ValueError("burst: expected 1 or more, beside requests-per-second")
    return name, ClientLimits(rate, burst, tokens)


def _number(setting: str, text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{setting}: expected a number")
    return float(text)
