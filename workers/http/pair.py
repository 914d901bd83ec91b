"""What a request body says about a prefill/decode pair, in either engine's words.

SGLang: `bootstrap_host`, `bootstrap_port`, `bootstrap_room`, lists of them for a batch. vLLM:
`kv_transfer_params`, where a prompt that is to be decoded elsewhere is answered with what the decode worker
has to be told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workers.http.errors import BadRequest

if TYPE_CHECKING:
    from workers.http.edge import Edge

DEFAULT_BOOTSTRAP_PORT = 8998


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt's other half.

    `room`: SGLang's. `url` and `question`: where the KV comes from, on a decode worker. `offers`: the KV
    stays here until it is asked for.
    """

    room: int | None = None
    url: str | None = None
    question: dict[str, Any] | None = None
    offers: bool = False


def pairs_of(edge: Edge, body: dict[str, Any], prompts: int) -> list[Pair]:
    """Return the other half of every prompt; raises BadRequest when a half worker is not told of one."""
    if edge.spec.engine == "vllm":
        return [_vllm_pair(body.get("kv_transfer_params"))] * prompts
    if edge.spec.role == "both":
        return [Pair()] * prompts
    rooms = _each(body.get("bootstrap_room"), prompts)
    hosts = _each(body.get("bootstrap_host"), prompts)
    ports = _each(body.get("bootstrap_port"), prompts)
    return [_sglang_pair(edge, *given) for given in zip(rooms, hosts, ports, strict=True)]


def _each(value: Any, prompts: int) -> list[Any]:
    if not isinstance(value, list):
        return [value] * prompts
    if len(value) != prompts:
        raise BadRequest("the lists of bootstrap fields must be as long as the batch", param="bootstrap_room")
    return value


def _sglang_pair(edge: Edge, room: Any, host: Any, port: Any) -> Pair:
    if type(room) is not int:
        message = "Disaggregated request received without bootstrap room id."
        raise BadRequest(message, param="bootstrap_room")
    if edge.spec.role == "prefill":
        return Pair(room=room)
    url = f"http://{_literal(host or '127.0.0.1')}:{port or DEFAULT_BOOTSTRAP_PORT}/handover"
    return Pair(room=room, url=url, question={"room": room})


def _vllm_pair(params: Any) -> Pair:
    given = params if isinstance(params, dict) else {}
    if given.get("do_remote_decode"):
        return Pair(offers=True)
    host, port, key = (given.get(f"remote_{name}") for name in ("host", "port", "request_id"))
    if not (given.get("do_remote_prefill") and host and port and key):
        return Pair()
    return Pair(url=f"http://{_literal(host)}:{port}/handover", question={"id": key})


def _literal(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def offer(edge: Edge, rid: str, blocks: int) -> dict[str, Any]:
    """Return the `kv_transfer_params` that a decode worker needs to fetch a prompt from this one."""
    host, port = edge.handover_address or ("127.0.0.1", 0)
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": list(range(blocks)),
        "remote_engine_id": edge.engine_id,
        "remote_request_id": rid,
        "remote_host": host,
        "remote_port": port,
        "tp_size": 1,
    }
