from __future__ import annotations

import pytest

from router.errors import BodyTooLarge, Overloaded
from router.proxy.body import BodyBudget, read_body
from router.proxy.disconnect import ClientGone

GONE: dict[str, object] = {"type": "http.disconnect"}


def part(body: bytes, *, more: bool = False) -> dict[str, object]:
    return {"type": "http.request", "body": body, "more_body": more}


async def read(*messages: dict[str, object], limit: int = 10, budget: BodyBudget | None = None) -> bytes:
    waiting = iter(messages)

    async def receive() -> dict[str, object]:
        return next(waiting)

    return await read_body(receive, limit, budget)


async def test_a_body_in_one_piece_is_not_copied() -> None:
    body = b"0123456789"
    assert await read(part(body)) is body


async def test_a_body_in_pieces_is_joined() -> None:
    assert await read(part(b"01", more=True), part(b"", more=True), part(b"23")) == b"0123"
    assert await read({"type": "http.request"}) == b""


async def test_a_body_over_the_limit_is_refused_as_soon_as_it_is() -> None:
    with pytest.raises(BodyTooLarge, match="10 bytes"):
        await read(part(bytes(11)))
    with pytest.raises(BodyTooLarge):
        await read(part(bytes(6), more=True), part(bytes(5), more=True))


async def test_a_client_may_leave_while_it_sends() -> None:
    with pytest.raises(ClientGone):
        await read(GONE)
    with pytest.raises(ClientGone):
        await read(part(b"0", more=True), GONE)


async def test_all_bodies_together_are_bounded() -> None:
    budget = BodyBudget(10)
    assert await read(part(bytes(6)), budget=budget) == bytes(6)
    for parts in ([part(bytes(5))], [part(bytes(3), more=True), part(bytes(3), more=True)]):
        with pytest.raises(Overloaded) as caught:
            await read(*parts, budget=budget)
        assert (caught.value.status, caught.value.retry_after) == (503, 1)
        assert budget.held == 6
    budget.give_back(6)
    assert await read(part(bytes(4), more=True), part(bytes(6)), budget=budget) == bytes(10)
    assert budget.held == 10


async def test_a_body_that_is_not_read_to_its_end_is_not_held() -> None:
    budget = BodyBudget(100)
    with pytest.raises(ClientGone):
        await read(part(bytes(4), more=True), GONE, budget=budget)
    with pytest.raises(BodyTooLarge):
        await read(part(bytes(6), more=True), part(bytes(5), more=True), budget=budget)
    with pytest.raises(BodyTooLarge):
        await read(part(bytes(11)), budget=budget)
    assert budget.held == 0
