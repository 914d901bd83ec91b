"""A weight update on vLLM: begun, sent, finished, in this order and no other, as a real 0.32 has it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workers.edge import one

PROMPT = list(range(1000, 1070))
PIECE: dict[str, Any] = {"update_info": {"names": []}}


async def test_new_weights_come_in_three_calls_and_clear_nothing() -> None:
    async with one(engine="vllm") as edge:
        await edge.complete(PROMPT)
        for path, body in (
            ("start_weight_update", {}),
            ("update_weights", PIECE),
            ("finish_weight_update", {}),
        ):
            assert (await edge.post(f"/{path}", body)).status_code == 200
        assert (await edge.get("/weight_info")).json() == {"weight_version": "default"}
        assert await edge.cached(PROMPT) == 64


async def test_the_last_of_them_names_the_version_and_no_other_does() -> None:
    async with one(engine="vllm") as edge:
        await edge.post("/start_weight_update", {"weight_version": "1"})
        await edge.post("/update_weights", PIECE | {"weight_version": "2"})
        assert (await edge.get("/weight_info")).json() == {"weight_version": "default"}
        await edge.post("/finish_weight_update", {"weight_version": "3"})
        assert (await edge.get("/weight_info")).json() == {"weight_version": "3"}
        await edge.post("/update_weight_version", {"new_version": "4"})
        assert (await edge.get("/weight_info")).json() == {"weight_version": "4"}


async def test_a_call_out_of_turn_is_an_error_of_the_engines() -> None:
    async with one(engine="vllm") as edge:
        for path, body in (("update_weights", PIECE), ("finish_weight_update", {})):
            answer = await edge.post(f"/{path}", body)
            assert answer.status_code == 500
            assert answer.json()["error"]["type"] == "InternalServerError"
            assert path in answer.json()["error"]["message"]
        assert (await edge.post("/start_weight_update")).status_code == 200
        assert (await edge.post("/start_weight_update")).status_code == 500


async def test_a_piece_that_is_refused_leaves_the_update_open() -> None:
    async with one(engine="vllm") as edge:
        await edge.post("/start_weight_update")
        answer = await edge.post("/update_weights", {"model_path": "new"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "body.update_info")
        assert (await edge.post("/start_weight_update")).status_code == 500
        assert (await edge.post("/finish_weight_update")).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/update_weights", {"update_info": "all"}),
        ("/finish_weight_update", {"weight_version": 7}),
        ("/update_weight_version", {"new_version": 7}),
        ("/update_weight_version", {}),
    ],
)
async def test_a_field_of_a_wrong_type_is_a_400(path: str, body: dict[str, Any]) -> None:
    async with one(engine="vllm") as edge:
        await edge.post("/start_weight_update")
        assert (await edge.post(path, body)).status_code == 400
