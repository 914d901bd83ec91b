"""What all routers call a worker, however each of them spells its URL."""

from __future__ import annotations

from functools import lru_cache

from router.proxy.origin import parse_origin


@lru_cache(maxsize=4096)
def name_of(url: str) -> str:
    """Return the name. Raises ConfigError for what is no URL of a worker."""
    origin = parse_origin(url)
    scheme = "https" if origin.secure else "http"
    return f"{scheme}://{origin.host}:{origin.port}{origin.prefix.decode()}"
