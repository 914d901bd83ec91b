"""How one request is to be routed, as far as that differs from one request to the next."""

from __future__ import annotations

import msgspec

from router.core.cost import Policy


class Wish(msgspec.Struct, frozen=True):
    """By which policy; `session` is what the client calls its conversation, None when it does not."""

    policy: Policy
    session: bytes | None = None
