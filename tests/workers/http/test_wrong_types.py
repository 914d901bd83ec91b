"""Every field of every route with every kind of value: a wrong one is a 400 that names it, never a 5xx.

The workers are real processes; nothing of all this may end up on their standard error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.workers.process import Process, started

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = {  # JSON by kind; NaN and 1e400 are none
    "null": ["null"],
    "boolean": ["true", "false"],
    "integer": ["0", "-1", "7", str(2**70), str(-(2**70))],
    "number": ["1.5", "-0.0"],
    "string": ['""', '"x"', '"\\u0000"', '"a b\\r\\nx: y"', '"' + "9" * 5000 + '"'],
    "list": ["[]", "[null]", "[[]]", '["x"]', "[{}]", "[1.5]", "[true]"],
    "object": ["{}", '{"a": [1]}'],
    "no json": ["NaN", "Infinity", "1e400", '"\\ud800"', "nul"],
}
STREAM = {"stream": True}
CHATS: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
COMPLETIONS: dict[str, Any] = {"prompt": [1, 2], "max_tokens": 1}
MOST: dict[str, Any] = {"sampling_params": {"max_new_tokens": 1}}
NATIVE: dict[str, Any] = {"input_ids": [1, 2], **MOST}
PROMPT, WHOLE, TEXT, SWITCH, THING = (
    "string list",
    "integer null",
    "string null",
    "boolean null",
    "object null",
)
ALL = {"model": TEXT, "stream": SWITCH, "rid": TEXT, "session_id": TEXT, "cache_salt": TEXT}
OPENAI = ALL | {
    "max_tokens": WHOLE,
    "n": WHOLE,
    "stream_options": THING,
    "stream_options.include_usage": SWITCH,
}
CHAT = OPENAI | {
    "messages": "list",
    "messages.role": "string",
    "messages.content": "string list null",
    "max_completion_tokens": WHOLE,
    "tools": "list null",
    "chat_template_kwargs": THING,
}
SGLANG = {"lora_path": TEXT, "extra_key": TEXT, "routed_dp_rank": WHOLE}
REMOTE = ("do_remote_decode", "do_remote_prefill", "remote_host", "remote_port", "remote_request_id")
VLLM = {
    "vllm_xargs": THING,
    "echo": SWITCH,
    "logprobs": "integer boolean null",
    "prompt_logprobs": WHOLE,
    "kv_transfer_params": THING,
    **{
        f"kv_transfer_params.{name}": kinds
        for name, kinds in zip(REMOTE, (SWITCH, SWITCH, TEXT, WHOLE, TEXT), strict=True)
    },
}
ROOMS = {
    "bootstrap_room": "integer list",
    "bootstrap_host": "string list null",
    "bootstrap_port": "integer list null",
}
UPDATE = {
    "weight_version": TEXT,
    "flush_cache": SWITCH,
    "keep_pause": SWITCH,
    "abort_all_requests": SWITCH,
}
TAGS = {"tags": "list null"}
GENERATE = (
    ALL
    | SGLANG
    | {
        "sampling_params": THING,
        "sampling_params.max_new_tokens": WHOLE,
    }
)
FAULTS = {
    **dict.fromkeys(("lose", "slow", "hold_pause", "refuse"), "number integer"),
    **dict.fromkeys(("seed", "burst", "burst_bytes", "status", "lose_first"), "integer"),
    **dict.fromkeys(("silent", "restart", "all_routes"), "boolean"),
    "replay": "string",
}
Route = tuple[str, dict[str, Any], dict[str, str]]  # path, a good body, the fields and their kinds
HALVES: list[Route] = [
    ("/v1/completions", COMPLETIONS | {"bootstrap_room": 1, "bootstrap_port": 1}, OPENAI | ROOMS),
    ("/generate", NATIVE | {"bootstrap_room": 1, "bootstrap_port": 1}, GENERATE | ROOMS),
]
WORKERS: dict[str, tuple[list[str], list[Route]]] = {
    "sglang": (
        [],
        [
            ("/v1/completions", COMPLETIONS, OPENAI | SGLANG | {"prompt": PROMPT}),
            ("/v1/chat/completions", CHATS, CHAT | SGLANG),
            ("/generate", NATIVE, GENERATE | {"input_ids": PROMPT, "text": "null"}),
            ("/generate", {"text": "x", **MOST}, {"text": PROMPT, "input_ids": "null"}),
            ("/pause_generation", {}, {"mode": ""}),
            ("/continue_generation", {}, {}),
            ("/update_weights_from_disk", {"model_path": "m"}, UPDATE | {"model_path": "string"}),
            *((f"/update_weights_from_{source}", {}, UPDATE) for source in ("tensor", "distributed", "ipc")),
            ("/release_memory_occupation", {}, TAGS),
            ("/resume_memory_occupation", {}, TAGS),
            ("/abort_request", {}, {"rid": TEXT, "abort_all": SWITCH}),
            ("/_faults", {}, FAULTS),
        ],
    ),
    "vllm": (
        ["--engine", "vllm"],
        [
            ("/v1/completions", COMPLETIONS | STREAM, OPENAI | VLLM | {"prompt": PROMPT}),
            ("/v1/chat/completions", CHATS | STREAM, CHAT | VLLM),
            ("/tokenize", {"prompt": "x"}, {"prompt": TEXT}),
            (
                "/tokenize",
                {"messages": CHATS["messages"]},
                {name: CHAT[name] for name in CHAT if "messages" in name},
            ),
            ("/_faults", {}, FAULTS),
        ],
    ),
    "prefill": (["--loop", "prefill"], HALVES),
    "decode": (["--loop", "decode"], HALVES),
}
CASES = [(worker, route) for worker, (_, routes) in WORKERS.items() for route in routes]
OPTIONS = ["--profile", "instant", "--max-model-len", "64", "--capacity-tokens", "200000"]
FAILED_PAIR = ("KV transfer failed", "bootstrap room")  # a half that was asked well and found no other half


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, Process]]:
    """One process per kind of worker; it has to end without a word."""
    pairs = ["--pair-seconds", "0.02"]
    with (
        started("serve", *OPTIONS) as sglang,
        started("serve", *OPTIONS, "--engine", "vllm", *pairs) as vllm,
        started("serve", *OPTIONS, "--loop", "prefill", *pairs) as prefill,
        started("serve", *OPTIONS, "--loop", "decode", *pairs) as decode,
    ):
        yield {"sglang": sglang, "vllm": vllm, "prefill": prefill, "decode": decode}


def _with(body: dict[str, Any], field: str, value: str) -> str:
    """Return a body as JSON in which a field, perhaps one of an object or of a message, is a JSON text."""
    outer, _, inner = field.partition(".")
    if inner and outer == "messages":
        whole: Any = [{**body[outer][0], inner: "@"}]
    elif inner:
        whole = {**body.get(outer, {}), inner: "@"}
    else:
        whole = "@"
    return json.dumps({**body, outer: whole}).replace('"@"', value)


def _check(answer: httpx2.Response, field: str, kinds: str, kind: str) -> None:
    said = f"{field}: {answer.status_code} {answer.text[:300]}"
    if kind in kinds.split():
        failed_pair = any(words in answer.text for words in FAILED_PAIR)
        assert answer.status_code < 500 or failed_pair, said
    elif kind == "no json":
        assert answer.status_code == 400, said
    else:
        assert answer.status_code == 400, said
        assert _names(answer.text, field), said


def _names(text: str, field: str) -> bool:
    outer, _, inner = field.partition(".")
    return (inner or outer) in text or (outer == "messages" and "messages" in text)


@pytest.mark.parametrize(("worker", "route"), CASES, ids=[f"{worker}{route[0]}" for worker, route in CASES])
def test_a_field_of_a_wrong_type_is_a_400_that_names_it(
    processes: dict[str, Process], worker: str, route: Route
) -> None:
    path, body, fields = route
    with httpx2.Client(base_url=processes[worker].url, timeout=30.0) as client:
        for field, kinds in fields.items():
            for kind, values in KINDS.items():
                if path == "/_faults" and kind in kinds.split():
                    continue  # it would do as told
                for value in values:
                    answer = client.post(path, content=_with(body, field, value))
                    _check(answer, field, kinds, kind)
                    _go_on(client, worker)


def _go_on(client: httpx2.Client, worker: str) -> None:
    """End a pause that a body has asked for."""
    path = "/resume" if worker == "vllm" else "/continue_generation"
    assert client.post(path).status_code == 200


@pytest.mark.parametrize(("worker", "route"), CASES, ids=[f"{worker}{route[0]}" for worker, route in CASES])
@pytest.mark.parametrize("body", [b"{", b"[]", b"5", b"null", b'"x"', b"\xff\xfe", b"{}{}", b"[" * 100_000])
def test_a_body_that_is_no_object_is_a_400(
    processes: dict[str, Process], worker: str, route: Route, body: bytes
) -> None:
    answer = httpx2.post(processes[worker].url + route[0], content=body, timeout=30.0)
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("worker", ["sglang", "vllm"])
def test_more_copies_than_there_is_memory_for_are_a_400(processes: dict[str, Process], worker: str) -> None:
    for body in (
        {"prompt": [1], "n": 10**9},
        {"prompt": [[1]] * 100, "n": 16_000},
        {"prompt": [1] * 60_000, "n": 16_000},
    ):
        answer = httpx2.post(processes[worker].url + "/v1/completions", json=body, timeout=30.0)
        assert answer.status_code == 400
        assert "n " in answer.json().get("error", answer.json())["message"]


@pytest.mark.parametrize(
    ("worker", "path", "name"),
    [
        ("sglang", "/flush_cache", "timeout"),
        ("vllm", "/pause", "mode"),
        ("vllm", "/pause", "clear_cache"),
        ("vllm", "/sleep", "level"),
        ("vllm", "/sleep", "mode"),
        ("vllm", "/reset_prefix_cache", "reset_running_requests"),
    ],
)
@pytest.mark.parametrize("value", ["nan", "-1", "inf", "-inf", "1e999", "", "maybe", "[]", "9" * 400])
def test_a_query_parameter_that_is_none_is_a_400_that_names_it(
    processes: dict[str, Process], worker: str, path: str, name: str, value: str
) -> None:
    answer = httpx2.post(processes[worker].url + path, params={name: value}, timeout=30.0)
    assert answer.status_code == 400, answer.text
    assert name in answer.text
    assert httpx2.post(processes[worker].url + "/v1/completions", json=COMPLETIONS).status_code == 200


@pytest.mark.parametrize("worker", ["sglang", "vllm"])
@pytest.mark.parametrize(
    "value", ["nan", "-1", "1", "1.0", "1_0", "", "x", "9" * 5000, "\N{SUPERSCRIPT TWO}"]
)
def test_a_rank_header_that_names_no_rank_is_a_400(
    processes: dict[str, Process], worker: str, value: str
) -> None:
    headers = [(b"X-Data-Parallel-Rank", value.encode("latin-1"))]
    answer = httpx2.post(processes[worker].url + "/v1/completions", json=COMPLETIONS, headers=headers)
    assert answer.status_code == 400, answer.text
    assert "data_parallel_rank" in answer.text


@pytest.mark.parametrize(
    ("worker", "name", "kinds"), [("prefill", "room", "integer"), ("vllm", "id", "string")]
)
def test_a_handover_is_asked_for_with_what_it_needs(
    processes: dict[str, Process], worker: str, name: str, kinds: str
) -> None:
    port = processes[worker].workers[0]["bootstrap_port"]
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
        for kind, values in KINDS.items():
            for value in values:
                answer = client.post("/handover", content=f'{{"{name}": {value}}}')
                good = kind in kinds.split()
                assert answer.status_code in ({400, 500} if good else {400}), answer.text
                assert answer.status_code == 400 or "error" in answer.json()
        assert client.post("/handover", content="[1]").status_code == 400
