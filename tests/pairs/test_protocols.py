"""The bodies that both halves get, in either engine's words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import BadRequest
from router.pairs import transfer
from router.pairs.bootstrap import bodies
from router.pairs.half import Half, HalfFailed
from router.proxy.upstream import Upstream
from tests.pairs.ranks import a_rank

if TYPE_CHECKING:
    from router.proxy.relay import Relayed
    from router.proxy.response import Response

BODY = {"model": "m", "prompt": "x", "max_tokens": 9, "stream": True, "temperature": 0.5}


@dataclass
class Asked:
    """A request that nobody is asked; see `router.pairs.job`."""

    body: bytes
    prompts: int = 1
    copies: int = 1
    answered: bool = False

    def prefilled(self, usage: bytes | None = None) -> None:
        raise AssertionError(usage)

    async def pass_on(self, response: Response) -> Relayed:
        raise AssertionError(response)


def a_half(rank: int = 0, ranks: int = 1, host: str = "10.0.0.1") -> Half:
    upstream = Upstream("http://10.0.0.1")
    return Half(a_rank(rank=rank), upstream, b"/", [], ranks=ranks, bootstrap=(host, 8998))


def sent(
    prefill: Half, decode: Half, body: dict[str, Any], *, prompts: int = 1, copies: int = 1
) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = bodies(prefill, decode, Asked(json.dumps(body).encode(), prompts, copies))
    return json.loads(first), json.loads(second)


def test_both_sglang_halves_meet_in_a_room_that_is_theirs() -> None:
    first, second = sent(a_half(), a_half(), BODY)
    assert first == second
    room = first.pop("bootstrap_room")
    assert 0 <= room < 2**63
    assert first == BODY | {"bootstrap_host": "10.0.0.1", "bootstrap_port": 8998}
    assert sent(a_half(), a_half(), BODY)[0]["bootstrap_room"] != room


def test_an_ipv6_host_stands_in_brackets() -> None:
    assert sent(a_half(host="fd00::7"), a_half(), BODY)[1]["bootstrap_host"] == "[fd00::7]"


@pytest.mark.parametrize(("prompts", "copies", "count"), [(3, 1, 3), (1, 2, 2), (2, 2, 4)])
def test_every_answer_of_a_batch_has_a_room(prompts: int, copies: int, count: int) -> None:
    first, second = sent(a_half(), a_half(), BODY, prompts=prompts, copies=copies)
    assert first == second
    assert len(set(first["bootstrap_room"])) == count
    assert first["bootstrap_host"] == ["10.0.0.1"] * count
    assert first["bootstrap_port"] == [8998] * count


def test_more_answers_than_any_engine_gives_are_refused() -> None:
    with pytest.raises(BadRequest, match="16384"):
        sent(a_half(), a_half(), BODY, prompts=2, copies=16_000)


@given(st.integers(1, 64).flatmap(lambda ranks: st.tuples(st.integers(0, ranks - 1), st.just(ranks))))
def test_a_room_leads_to_the_rank_that_was_chosen(pin: tuple[int, int]) -> None:
    rank, ranks = pin
    room = sent(a_half(rank, ranks), a_half(), BODY)[0]["bootstrap_room"]
    assert room % ranks == rank
    assert 0 <= room < 2**63


def test_each_half_is_told_its_rank_and_the_decode_worker_the_others() -> None:
    ours = {"routed_dp_rank": 7, "disagg_prefill_dp_rank": 7}
    first, second = sent(a_half(1, 4), a_half(2, 3), BODY | ours)
    assert (first["routed_dp_rank"], "disagg_prefill_dp_rank" in first) == (1, False)
    assert (second["routed_dp_rank"], second["disagg_prefill_dp_rank"]) == (2, 1)
    first, second = sent(a_half(), a_half(), BODY | ours)
    assert not ours.keys() & (first.keys() | second.keys())


def test_a_vllm_prefill_worker_is_asked_for_one_token() -> None:
    body = BODY | {"stream_options": {"include_usage": True}, "min_tokens": 4, "kv_transfer_params": {"x": 1}}
    first = json.loads(transfer.prefill_body(json.dumps(body).encode()))
    asked = first.pop("kv_transfer_params")
    assert first == BODY | {"max_tokens": 1, "stream": False}
    assert (asked.pop("do_remote_decode"), asked.pop("do_remote_prefill")) == (True, False)
    nowhere = {"remote_engine_id": None, "remote_block_ids": None, "remote_host": None, "remote_port": None}
    assert asked == nowhere


def test_the_newer_limit_of_a_chat_is_set_where_it_is_used() -> None:
    chat = {"messages": [], "max_completion_tokens": 50}
    first = json.loads(transfer.prefill_body(json.dumps(chat).encode()))
    assert (first["max_completion_tokens"], first["max_tokens"]) == (1, 1)
    second = json.loads(transfer.decode_body(json.dumps(chat).encode(), b'{"remote_block_ids": [1, 2]}'))
    assert second == chat | {"kv_transfer_params": {"remote_block_ids": [1, 2]}}


def test_without_a_transfer_the_decode_worker_computes_the_prompt() -> None:
    body = json.dumps(BODY | {"kv_transfer_params": {"do_remote_prefill": True}}).encode()
    assert json.loads(transfer.decode_body(body, b"null")) == BODY


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b'{"kv_transfer_params": ' + b"[" * 9000], ids=["list", "cut", "deep"]
)
def test_what_is_no_answer_of_a_prefill_worker_is_that_workers_failure(body: bytes) -> None:
    with pytest.raises(HalfFailed, match="not a JSON object"):
        transfer._read(a_half(), body)
