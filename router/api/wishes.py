"""What a client's headers say about the routing of its request, as far as the operator lets them.

The session is read from a header alone. OpenAI's `user` in the body is a person, whose conversations have
prefixes of their own, and would keep all of them at one worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.api.custom import Guard, load_policy
from router.core.cost import POLICIES
from router.core.wish import Wish
from router.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from router.core.cost import Policy
    from router.proxy.headers import Field

POLICY = b"x-kv-router-policy"


class Wishes:
    """`policy` holds unless a client may choose another of `choices` by header (None: it may not).

    `session_header` names, in lower case, what tells one conversation from another. `guard` is that of a
    policy of the operator's own.
    """

    __slots__ = ("_choices", "_default", "_guard", "_reads", "_session")

    def __init__(
        self,
        policy: Policy,
        choices: Mapping[str, Policy] | None,
        session_header: str,
        guard: Guard | None = None,
    ) -> None:
        self._guard = guard
        self._default = Wish(policy)
        self._choices = choices
        self._session = session_header.encode()
        self._reads = choices is not None or policy.uses_session

    def of(self, headers: Iterable[Field]) -> Wish:
        """Return what a request wishes. Raises BadRequest. 0.1 us where nothing that clients say matters."""
        if not self._reads:
            return self._default
        policy, session = self._default.policy, None
        for name, value in headers:
            if name == self._session:
                session = value or None
            elif name == POLICY and self._choices is not None:
                policy = self._chosen(value, self._choices)
        return Wish(policy, session)

    def failures(self) -> int:
        """Return how often the operator's own policy has failed."""
        return self._guard.failures if self._guard is not None else 0

    def _chosen(self, value: bytes, choices: Mapping[str, Policy]) -> Policy:
        policy = choices.get(value.decode("latin-1").strip())
        if policy is None:
            raise BadRequest(f"{POLICY.decode()}: expected one of {', '.join(choices)}")
        return policy


def wishes_of(policy: str, session_header: str, *, allowed: bool) -> Wishes:
    """Return what clients may wish; `allowed`: to choose a policy. Raises ConfigError for the operator's."""
    known, guard = dict(POLICIES), None
    if policy not in known:
        known[policy], guard = load_policy(policy)
    return Wishes(known[policy], known if allowed else None, session_header.lower(), guard)
