"""What SGLang 0.5.23 tells about itself: server and model info, models, health, loads."""

from __future__ import annotations

from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Any

from workers.engine.load import load_of
from workers.http.answer import Json, Text
from workers.http.control import route
from workers.http.metrics import sglang_metrics
from workers.http.pair import DEFAULT_BOOTSTRAP_PORT
from workers.publisher import LOAD_TOPIC

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from workers.driver import Driver
    from workers.http.control import Handler
    from workers.http.edge import Edge

VERSION = "0.5.23"
UNHEALTHY_SECONDS = 20.0


def info_routes(edge: Edge) -> list[Route]:
    """Return the routes that change nothing."""
    tells = Info(edge)
    handlers: dict[str, Handler] = {
        "/server_info": tells.server_info,
        "/get_server_info": tells.server_info,
        "/model_info": tells.model_info,
        "/get_model_info": tells.model_info,
        "/v1/models": tells.models,
        "/health": tells.health,
        "/health_generate": tells.health,
        "/ready": tells.ready,
        "/v1/loads": tells.loads,
        "/metrics": tells.metrics,
    }
    return [route(edge, "GET", path, handler) for path, handler in handlers.items()]


@dataclass(slots=True)
class Info:
    """The handlers."""

    edge: Edge

    async def server_info(self, _request: Request) -> Json:
        """Everything, the event publisher above all."""
        spec = self.edge.spec
        return Json(
            {
                "model_path": self.edge.model_path,
                "tokenizer_path": self.edge.tokenizer.path,
                "served_model_name": spec.model,
                "page_size": spec.page_size,
                "dp_size": spec.dp,
                "enable_hierarchical_cache": spec.tiers is not None,
                "speculative_algorithm": "EAGLE" if spec.bigram else None,
                "disaggregation_mode": "null" if spec.role == "both" else spec.role,
                "disaggregation_bootstrap_port": self._bootstrap_port(),
                "context_length": spec.max_model_len,
                "max_total_num_tokens": spec.capacity_tokens,
                "kv_events": self._kv_events(),
                "startup_time": self.edge.started,
                "status": "paused" if self.edge.paused else "ready",
                "version": VERSION,
            }
        )

    def _bootstrap_port(self) -> int:
        address = self.edge.handover_address
        return DEFAULT_BOOTSTRAP_PORT if address is None else address[1]

    def _kv_events(self) -> dict[str, Any] | None:
        spec, endpoints = self.edge.spec, self.edge.endpoints
        if spec.events is None or endpoints is None:
            return None
        info: dict[str, Any] = {
            "publisher": "zmq",
            "endpoint_host": endpoints.host,
            "endpoint_port_base": endpoints.port,
            "topic": spec.events.topic,
            "block_size": spec.page_size,
            "dp_size": spec.dp,
        }
        if endpoints.replay_port is not None:
            info["replay_endpoint_port_base"] = endpoints.replay_port
        if endpoints.load_port is not None:
            info |= {"load_endpoint_port_base": endpoints.load_port, "load_topic": LOAD_TOPIC}
        return info

    async def model_info(self, _request: Request) -> Json:
        """The model, with the version of its weights."""
        return Json(
            {
                "model_path": self.edge.model_path,
                "tokenizer_path": self.edge.tokenizer.path,
                "is_generation": True,
                "weight_version": self.edge.weight_version,
            }
        )

    async def models(self, _request: Request) -> Json:
        """The model and its adapters."""
        base = self.edge.spec.model
        names = [(base, None), *((name, base) for name in self.edge.spec.adapters)]
        return Json({"object": "list", "data": [self._model(name, parent) for name, parent in names]})

    def _model(self, name: str, parent: str | None) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": int(self.edge.started),
            "owned_by": "sglang",
            "root": self.edge.model_path if parent is None else name,
            "parent": parent,
            "max_model_len": self.edge.spec.max_model_len,
        }

    async def health(self, _request: Request) -> Text:
        """Unhealthy only when a pause has lasted 20 seconds."""
        return Text(status=503 if self.edge.paused_seconds > UNHEALTHY_SECONDS else 200)

    async def ready(self, _request: Request) -> Text:
        """Not ready from the moment of a pause to its end."""
        return Text(status=503 if self.edge.paused else 200)

    async def loads(self, _request: Request) -> Json:
        """The load of every rank, in requests and tokens."""
        loads = [_load(driver) for driver in self.edge.drivers]
        return Json({"timestamp": time(), "version": VERSION, "dp_rank_count": len(loads), "loads": loads})

    async def metrics(self, _request: Request) -> Text:
        """Prometheus text."""
        return Text(sglang_metrics(self.edge))


def _load(driver: Driver) -> dict[str, Any]:
    load = load_of(driver.rank)
    return {
        "dp_rank": driver.number,
        "num_running_reqs": load.running,
        "num_waiting_reqs": load.waiting,
        "num_waiting_uncached_tokens": load.waiting_uncached,
        "num_used_tokens": load.used_tokens,
        "num_total_tokens": load.total_tokens,
        "max_total_num_tokens": load.capacity_tokens,
        "token_usage": load.used_tokens / load.capacity_tokens,
        "max_running_requests": load.max_running,
        "total_prefill_uncached_tokens": load.prefilled_tokens,
        "total_prefill_busy_us": load.prefill_busy_us,
    }
