"""Everything an operator can set, and the names that it has outside.

The fields of `Config` carry types and defaults, in the order of the sections in `router.options`, which say
how each is read, its unit and its line of help. The command line, the environment (`KV_ROUTER_*`), the YAML
file and docs/options.md are all driven by these tables.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING

from router.core.cost import DEFAULT_POLICY
from router.options import (
    failures,
    keys,
    kubernetes,
    limits,
    observe,
    policies,
    prompts,
    serving,
    views,
    workers,
)
from router.options.kinds import PATH
from router.setting import Option, Setting

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    from router.fleet.spec import WorkerSpec
    from router.proxy.route_limits import RouteLimits
    from router.share.address import Address


@dataclass(frozen=True, slots=True)
class Config:
    """A router's settings. `layers.load` gives valid ones."""

    # workers
    workers: tuple[WorkerSpec, ...]
    worker_file: str | None = None
    worker_allow: tuple[IPv4Network | IPv6Network, ...] = ()
    worker_api_key: str | None = None
    worker_ca: str | None = None
    probe_seconds: float = 1.0
    drain_seconds: float = 300.0
    # kubernetes
    discover: str = "off"
    kubernetes_selector: str | None = None
    kubernetes_namespaces: tuple[str, ...] = ()
    kubernetes_kind: str = "pods"
    kubernetes_port: str | None = None
    kubernetes_kv_port: int = 0
    kubernetes_replay_port: int = 0
    kubernetes_role_label: str | None = "kv-router/role"
    kubernetes_model_label: str | None = None
    kubernetes_api: str | None = None
    kubernetes_token: str | None = None
    kubernetes_ca: str | None = None
    # serving
    host: str = "127.0.0.1"
    port: int = 8000
    processes: int = 1
    share: Address | None = None
    share_channel: str = "kv-router"
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    forwarded_allow: tuple[IPv4Network | IPv6Network, ...] = ()
    epp_port: int = 0
    dashboard: str = "auto"
    allowed_hosts: tuple[str, ...] = ()
    leave_seconds: float = 0.0
    grace_seconds: int = 30
    # keys
    admin_key: str | None = None
    api_keys: str | None = None
    api_key: tuple[str, ...] = ()
    protect_metrics: str = "off"
    forward_authorization: str = "off"
    # limits
    connect_seconds: float = 5.0
    first_byte_seconds: float = 0.0
    idle_seconds: float = 0.0
    total_seconds: float = 0.0
    client_idle_seconds: float = 60.0
    route_limits: tuple[RouteLimits, ...] = ()
    hold_seconds: float = 60.0
    max_inflight: int = 0
    max_worker_inflight: int = 0
    queue_size: int = 1024
    queue_seconds: float = 30.0
    # failures
    retries: int = 2
    retry_share: float = 0.2
    retry_floor: float = 10.0
    breaker_failures: int = 5
    breaker_share: float = 0.5
    breaker_outlier: float = 5.0
    breaker_codes: tuple[int, ...] = (500, 502, 504)
    breaker_seconds: float = 5.0
    # policies
    policy: str = DEFAULT_POLICY
    uncached_weight: float = 1.5
    saturated_weight: float = 10.0
    copy_weight: float = 2.0
    crowd_weight: float = 4.0
    prefill_batch: int = 8192
    active_weight: float = 512.0
    allow_policy_header: str = "off"
    session_header: str = "x-session-id"
    occupancy_weight: float = 0.0
    adapter_weight: float = 1024.0
    adapter_slots: int = 4
    prefill_speed: float = 16_000.0
    host_speed: float = 200_000.0
    disk_speed: float = 20_000.0
    external_speed: float = 40_000.0
    dynamo_temperature: float = 0.0
    sticky_seconds: float = 18.0
    hash_bound: float = 1.25
    hash_tokens: int = 256
    load_seconds: float = 1.0
    pd_min_uncached: int = 0
    # prompts
    tokenizer: str | None = None
    tokenize_seconds: float = 0.05
    forward_input_ids: str = "off"
    max_body_bytes: int = 64 * 2**20
    # views
    predicted_ttl_seconds: float = 30.0
    approximate_ttl_seconds: float = 600.0
    predicted_max_blocks: int = 262144
    index_max_blocks: int = 2**24
    replay_seconds: float = 2.0
    # observe
    record: str | None = None
    record_max_bytes: int = 2**30
    log_format: str = "human"
    log_level: str = "info"
    log_requests: float = 0.0
    otlp: str | None = None


# By the heading that they have in docs/options.md.
SECTIONS = {
    "Workers": workers.SETTINGS,
    "Kubernetes": kubernetes.SETTINGS,
    "Serving": serving.SETTINGS,
    "Keys": keys.SETTINGS,
    "Limits": limits.SETTINGS,
    "Failures": failures.SETTINGS,
    "Policies": policies.SETTINGS,
    "Prompts": prompts.SETTINGS,
    "Views": views.SETTINGS,
    "Records and logs": observe.SETTINGS,
}
DEFAULTS = {
    field.name: None if field.default is MISSING or field.default == () else field.default
    for field in fields(Config)
}
OPTIONS = {
    name: Option(name, setting, DEFAULTS[name])
    for section in SECTIONS.values()
    for name, setting in section.items()
}
CONFIG_FILE = Option(
    "config", Setting(PATH, "YAML file with any of these settings; its keys are the names of the flags")
)
ALL_OPTIONS = (*OPTIONS.values(), CONFIG_FILE)
