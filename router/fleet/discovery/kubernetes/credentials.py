"""The token and the authority's certificate, as their files have them now: a cluster replaces them.

They are read in threads: a file can be slow, or a pipe to which nobody writes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from router.errors import ConfigError, UpstreamFailed
from router.named_file import read_named
from router.proxy.tls import trusting

if TYPE_CHECKING:
    import ssl

    from router.fleet.discovery.kubernetes.settings import Api
    from router.proxy.headers import Field

_MOST_TOKEN_BYTES = 2**16  # a header of one is refused long before


async def authorization(api: Api) -> list[Field]:
    """Return the header that has the token, if there is one. Raises UpstreamFailed for an unusable file."""
    if api.token is None:
        return []
    try:
        token = (await asyncio.to_thread(read_named, api.token, _MOST_TOKEN_BYTES)).strip()
    except OSError as error:
        raise UpstreamFailed(f"{api.token} cannot be read: {error.strerror}") from None
    if not token.isascii() or not token.decode().isprintable():
        raise UpstreamFailed(f"{api.token}: expected a token, one line of printable ASCII")
    return [(b"authorization", b"Bearer " + token)]


async def trust(api: Api) -> ssl.SSLContext | None:
    """Return whom to trust, None for the system's authorities. Raises UpstreamFailed for an unusable file."""
    if api.ca is None:
        return None
    try:
        return await asyncio.to_thread(trusting, "--kubernetes-ca", api.ca)
    except ConfigError as error:
        raise UpstreamFailed(error.message) from None
