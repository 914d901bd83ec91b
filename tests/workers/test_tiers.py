from __future__ import annotations

import pytest

from workers.tiers import TierError, tiers_from


def test_sizes_are_multiples_of_the_device() -> None:
    tiers = tiers_from("host=4x,storage=10.5x", write_through=2, host_gbps=20.0, storage_gbps=1.0)
    assert tiers is not None
    assert (tiers.host, tiers.storage, tiers.write_through) == (4.0, 10.5, 2)
    assert (tiers.host_bandwidth, tiers.storage_bandwidth) == (20e9, 1e9)
    assert tiers_from(None, write_through=1, host_gbps=1.0, storage_gbps=1.0) is None


@pytest.mark.parametrize("text", ["", "host", "host=4", "disk=4x", "storage=4x", "host=0x", "host=-1x"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(TierError, match="host"):
        tiers_from(text, write_through=1, host_gbps=1.0, storage_gbps=1.0)
