"""What a client may say about the routing of its request, and what it may not."""

from __future__ import annotations

import pytest

from router.api.wishes import Wishes
from router.core.cost import POLICIES
from router.errors import BadRequest

POLICY = b"x-kv-router-policy"


def test_without_leave_no_header_matters() -> None:
    wishes = Wishes(POLICIES["kv"], None, "x-session-id")
    wish = wishes.of([(POLICY, b"random"), (b"x-session-id", b"7")])
    assert (wish.policy.name, wish.session) == ("kv", None)
    assert wishes.of([(POLICY, b"nonsense")]) is wish


def test_with_leave_a_request_names_its_policy() -> None:
    wishes = Wishes(POLICIES["kv"], POLICIES, "x-session-id")
    assert wishes.of([]).policy.name == "kv"
    for name in POLICIES:
        assert wishes.of([(b"host", b"x"), (POLICY, b" %s " % name.encode())]).policy.name == name


@pytest.mark.parametrize("name", [b"", b"nonsense", b"KV", b"\xff\xfe", b"own_rules:other"])
def test_a_name_that_is_none_is_the_clients_mistake_and_the_choices_are_listed(name: bytes) -> None:
    wishes = Wishes(POLICIES["kv"], POLICIES, "x-session-id")
    with pytest.raises(BadRequest, match=r"x-kv-router-policy: expected one of kv, round_robin, .*preble"):
        wishes.of([(POLICY, name)])


def test_a_session_is_read_from_the_header_that_the_operator_names() -> None:
    wishes = Wishes(POLICIES["session"], None, "x-conversation")
    assert wishes.of([(b"x-session-id", b"7"), (b"x-conversation", b"8")]).session == b"8"
    assert wishes.of([(b"x-conversation", b"")]).session is None
    assert wishes.of([]).session is None
