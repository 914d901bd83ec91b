"""What a real vLLM 0.32 answers to questions of every kind, kept to hold the stand-in against.

`python -m tests.workers.http.answers URL` asks a real engine and writes the record; `make test-engines` asks
it again, `make test` asks the stand-in. Of an answer that is good only the fields, their order and kinds
count, of an error every word.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx2

RECORD = Path(__file__).parents[2] / "fixtures" / "captures" / "vllm_0.32.0_answers.json"
Question = tuple[str, str, Any]  # method, path, body
MODEL, ADAPTER, BLOCK_SIZE, LONGEST = "tiny", "tiny-adapter", 32, 2048

_PROMPT = list(range(1000, 1070))
_COMPLETIONS, _CHATS = "/v1/completions", "/v1/chat/completions"
_USAGE = {"stream": True, "stream_options": {"include_usage": True}}
_IDS = {"return_token_ids": True}
_ASK = {"model": MODEL, "max_tokens": 3, "temperature": 0, "ignore_eos": True}
_TEXT = _ASK | {"prompt": _PROMPT}
_CHAT = _ASK | {"messages": [{"role": "user", "content": "hello world"}]}
_WITH: list[dict[str, Any]] = [{}, {"stream": True}, _USAGE, _IDS, _IDS | _USAGE]
_REFUSED: list[dict[str, Any]] = [
    {"stream_options": {"include_usage": True}},
    {"model": "nope"},
    {"cache_salt": ""},
    {"cache_salt": 5},
    {"max_tokens": LONGEST + 1},
]
_EMPTY: list[Any] = ["", [], [[]], None]
QUESTIONS: list[Question] = [
    ("POST", "/update_weight_version", {"new_version": "default"}),
    *(("POST", _COMPLETIONS, _TEXT | more) for more in _WITH),
    ("POST", _COMPLETIONS, _TEXT | {"model": ADAPTER}),
    ("POST", _COMPLETIONS, _TEXT | {"cache_salt": "s", "prompt": [_PROMPT, _PROMPT[:40]]}),
    *(("POST", _CHATS, _CHAT | more) for more in _WITH),
    *(("POST", _COMPLETIONS, _TEXT | more) for more in _REFUSED),
    *(("POST", _CHATS, _CHAT | more) for more in _REFUSED),
    ("POST", _COMPLETIONS, _TEXT | {"prompt": _PROMPT * 40}),
    *(("POST", _COMPLETIONS, _TEXT | {"prompt": prompt}) for prompt in _EMPTY),
    ("POST", "/tokenize", {"model": MODEL, "prompt": "hello world"}),
    ("POST", "/tokenize", {"model": MODEL, "messages": _CHAT["messages"]}),
    ("POST", "/tokenize", {"model": "nope", "prompt": "hello world"}),
    *(("GET", path, None) for path in ("/v1/models", "/version", "/load", "/weight_info", "/nothing")),
    *(("POST", f"/sleep?level={level}", None) for level in ("9", "-1", "x")),
    *(("POST", f"/pause?{wrong}", None) for wrong in ("mode=bogus", "clear_cache=odd")),
    ("GET", "/pause", None),
    *(("POST", path, None) for path in ("/pause", "/resume", "/reset_prefix_cache")),
    ("POST", "/sleep?level=0", None),
    ("GET", "/is_sleeping", None),
    ("POST", "/wake_up", None),
    ("POST", "/sleep?level=1", None),
    *(
        question
        for tag in ("odd", "weights", "scheduling", "kv_cache")
        for question in (
            ("POST", f"/wake_up?tags={tag}", None),
            ("GET", "/is_sleeping", None),
            ("GET", "/is_paused", None),
        )
    ),
    ("POST", "/sleep?level=2", None),
    ("POST", "/resume", None),
    ("GET", "/is_paused", None),
    ("GET", "/is_sleeping", None),
    ("POST", "/wake_up", None),
    ("GET", "/is_sleeping", None),
    ("POST", "/update_weights", {"update_info": {"factor": 1.0}}),
    ("POST", "/finish_weight_update", {}),
    ("POST", "/start_weight_update", {}),
    ("POST", "/start_weight_update", {}),
    ("POST", "/update_weights", {"model_path": "new"}),
    ("POST", "/update_weights", {"update_info": {"factor": 1.0}, "weight_version": "2"}),
    ("POST", "/finish_weight_update", {"weight_version": "3"}),
    ("GET", "/weight_info", None),
    ("POST", "/update_weight_version", {"new_version": "default"}),
    ("GET", "/weight_info", None),
]


def answers(client: httpx2.Client) -> list[Any]:
    """Ask every question, in order; return the status and form of each answer."""
    return [_answer(client, *question) for question in QUESTIONS]


def _answer(client: httpx2.Client, method: str, path: str, body: Any) -> Any:
    # A connection of its own: a server under load can let go of one that seems idle.
    answer = client.request(method, path, json=body, headers={"connection": "close"})
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if kind == "text/event-stream":
        return [answer.status_code, *_forms(answer.text)]
    said = answer.json() if kind == "application/json" else answer.text
    exact = answer.status_code != 200 or path.startswith(("/is_", "/wake", "/sleep", "/weight", "/pause"))
    return [answer.status_code, said if exact else form(said)]


def _forms(text: str) -> list[Any]:
    """Return the forms of a stream's events, of those that are alike one after another the first."""
    events = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    forms = [form(json.loads(event)) if event != "[DONE]" else event for event in events]
    return [each for at, each in enumerate(forms) if at == 0 or each != forms[at - 1]]


def form(value: Any) -> Any:
    """Return the fields of a value in their order, with their kinds; of a list its first entry's."""
    if isinstance(value, dict):
        return [[name, form(held)] for name, held in value.items()]
    if isinstance(value, list):
        return ["list", *map(form, value[:1])]
    return type(value).__name__


def recorded() -> list[Any]:
    """Return what the real engine has answered."""
    record: list[Any] = json.loads(RECORD.read_text())
    return record


if __name__ == "__main__":
    with httpx2.Client(base_url=sys.argv[1], timeout=120.0) as engine:
        RECORD.write_text("[\n" + ",\n".join(map(json.dumps, answers(engine))) + "\n]\n")
