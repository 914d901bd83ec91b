"""What a request body says about a prefill/decode pair, in either engine's words.

SGLang: `bootstrap_host`, `bootstrap_port`, `bootstrap_room`, lists of them for a batch. vLLM:
`kv_transfer_params`, where a prompt that is to be decoded elsewhere is answered with what the decode worker
has to be told. A field of a wrong type is refused; vLLM's object without the remote fields makes the decode
worker compute the prompt itself, as its connectors do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workers.http.body import boolean, integer, mapping, string
from workers.http.errors import BadRequest

if TYPE_CHECKING:
    from workers.http.edge import Edge

DEFAULT_BOOTSTRAP_PORT = 8998
MOST_ROOM = 2**64 - 1
_MOST_PORT = 65_535
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]|[0-9A-Fa-f:.]+")


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt's other half.

    `room`: SGLang's. `address` and `question`: where the KV comes from, on a decode worker, and how it is
    asked for. `offers`: the KV stays here until it is asked for.
    """

    room: int | None = None
    address: tuple[str, int] | None = None
    question: dict[str, Any] | None = None
    offers: bool = False


def pairs_of(edge: Edge, body: dict[str, Any], prompts: int) -> list[Pair]:
    """Return the other half of every prompt; raises BadRequest when a half worker is not told of one."""
    if edge.spec.engine == "vllm":
        return [_vllm_pair(mapping(body, "kv_transfer_params"))] * prompts
    if edge.spec.role == "both":
        return [Pair()] * prompts
    fields = [_each(body, f"bootstrap_{name}", prompts) for name in ("room", "host", "port")]
    return [_sglang_pair(edge, *given) for given in zip(*fields, strict=True)]


def _each(body: dict[str, Any], name: str, prompts: int) -> list[dict[str, Any]]:
    """Return a field's value for each prompt, as an object of one field."""
    value = body.get(name)
    values = value if isinstance(value, list) else [value] * prompts
    if len(values) != prompts:
        raise BadRequest(f"{name} must be a list as long as the batch", param=name)
    return [{name: entry} for entry in values]


def _sglang_pair(edge: Edge, room: dict[str, Any], host: dict[str, Any], port: dict[str, Any]) -> Pair:
    number = integer(room, "bootstrap_room", None, least=0, most=MOST_ROOM)
    if number is None:
        message = "Disaggregated request received without bootstrap room id."
        raise BadRequest(message, param="bootstrap_room")
    name, at = _host(host, "bootstrap_host"), _port(port, "bootstrap_port")
    if edge.spec.role == "prefill":
        return Pair(room=number)
    address = (name or "127.0.0.1", at or DEFAULT_BOOTSTRAP_PORT)
    return Pair(room=number, address=address, question={"room": number})


def _vllm_pair(params: dict[str, Any]) -> Pair:
    host, port = _host(params, "remote_host"), _port(params, "remote_port")
    key = string(params, "remote_request_id")
    fetches = boolean(params, "do_remote_prefill", default=False)
    if boolean(params, "do_remote_decode", default=False):
        return Pair(offers=True)
    if not (fetches and host and port and key):
        return Pair()
    return Pair(address=(host, port), question={"id": key})


def _host(fields: dict[str, Any], name: str) -> str | None:
    """Return a host name or an address without brackets."""
    host = string(fields, name)
    if host is not None and _HOST.fullmatch(host) is None:
        raise BadRequest(f"{name} must be a host name or an address", param=name)
    return host and host.strip("[]")


def _port(fields: dict[str, Any], name: str) -> int | None:
    return integer(fields, name, None, least=1, most=_MOST_PORT)


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
