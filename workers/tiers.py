"""`host=4x,storage=10x`: the tiers below the device, as the command line gives them."""

from __future__ import annotations

import re

from workers.engine.hicache import TierConfig

_SIZE = re.compile(r"(host|storage)=([0-9]+(?:\.[0-9]+)?)x")
GIGABYTE = 1e9


class TierError(ValueError):
    """A text that describes no tiers."""


def tiers_from(
    text: str | None, *, write_through: int, host_gbps: float, storage_gbps: float
) -> TierConfig | None:
    """Return the tiers that a text describes, sizes in device sizes, bandwidths in GB/s; None for no text."""
    if text is None:
        return None
    sizes: dict[str, float] = {}
    for part in text.split(","):
        found = _SIZE.fullmatch(part.strip())
        if found is None:
            raise TierError(f"expected host=<n>x or storage=<n>x, not {part.strip()!r}")
        if found[1] in sizes:
            raise TierError(f"{found[1]} is given twice")
        sizes[found[1]] = float(found[2])
    if not sizes.get("host"):
        raise TierError("storage needs a host tier: host=<n>x, more than 0")
    return TierConfig(
        host=sizes["host"],
        storage=sizes.get("storage", 0.0),
        write_through=write_through,
        host_bandwidth=host_gbps * GIGABYTE,
        storage_bandwidth=storage_gbps * GIGABYTE,
    )
