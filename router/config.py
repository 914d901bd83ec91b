"""Everything an operator can set, in one table.

The fields of `Config` are that table: each carries its type, its default, how its text is read, its unit and
its line of help. The command line, the environment (`KV_ROUTER_*`), the YAML file and the reference in docs
are all driven by it, so a setting is added in one place. Flags beat the environment, which beats the file;
a wrong value is an error also where a stronger one would hide it.
"""

from __future__ import annotations

import re
from collections import ChainMap, Counter
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

from router.api.keys import KEY
from router.config_file import read_file
from router.core.cost import DEFAULT_POLICY, POLICIES
from router.errors import ConfigError
from router.fleet import spec
from router.proxy.route_limits import EXPECTED as ROUTE_LIMITS_FORM
from router.proxy.route_limits import RouteLimits, parse_route_limits, route_limits_from_mapping
from router.setting import Given, Kind, Option, Setting, integer, number, one_of, word
from router.share.address import Address, parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What was typed, by field name, `config` among them.
Flags: TypeAlias = "Mapping[str, str | Sequence[str]]"
DAY = 86400.0
WEEK = 7 * DAY


def _read_worker(value: str | dict[object, object]) -> spec.WorkerSpec:
    return spec.parse_worker(value) if isinstance(value, str) else spec.from_mapping(value)


def _read_network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text)  # raises ValueError, also for an address within the range it means


OWN_POLICY = r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*"


def _read_policy(text: str) -> str:
    if text in POLICIES or re.fullmatch(OWN_POLICY, text):
        return text
    raise ValueError(text)


def _read_route_limits(value: str | dict[object, object]) -> RouteLimits:
    return parse_route_limits(value) if isinstance(value, str) else route_limits_from_mapping(value)


LABEL = r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
HOST = word("a host name or address", "HOST", r"[\w:%-]{1,63}(\.[\w:%-]{1,63})*\.?")
NETWORK = Kind("a range of addresses such as 10.0.0.0/8", _read_network, "CIDR")
WORKER = Kind("URL[,setting=value...]", _read_worker, "WORKER", takes=(str, dict))
POLICY = Kind(
    f"one of {', '.join(POLICIES)}, or module:function",
    _read_policy,
    "NAME",
    schema={"anyOf": [{"enum": list(POLICIES)}, {"type": "string", "pattern": f"^{OWN_POLICY}$"}]},
)
HEADER = word("the name of a header", "NAME", r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
PATH = word("a path", "PATH", r"[^\0]+")
OTLP = word("a URL of http or https", "URL", r"https?://[^\s@]+")
SHARE = Kind(
    "redis://[[user]:password@]host[:port], or rediss://, valkey://, valkeys://", parse_address, "URL"
)
ROUTE_LIMITS = Kind(ROUTE_LIMITS_FORM, _read_route_limits, "LIMITS", takes=(str, dict))


@dataclass(frozen=True, slots=True)
class Config:
    """A router's settings. `load` gives valid ones; the limits on what each may be stand beside it."""

    workers: Annotated[
        tuple[spec.WorkerSpec, ...],
        Setting(
            WORKER,
            "A worker's URL, followed by what it should not be asked for itself: kv=tcp://host:port,"
            "replay=tcp://host:port,topic=T,block-size=N,dp=N,engine=sglang|vllm,role=both|prefill|decode,"
            "bind=true,model=ANOTHER-NAME. Repeat the flag for every worker; the variable holds several, "
            "separated by spaces; the file a list of such texts or of mappings with url and the same keys",
            repeated=True,
        ),
    ]
    host: Annotated[str, Setting(HOST, "Address to listen on")] = "127.0.0.1"
    port: Annotated[int, Setting(integer(0, 65535), "TCP port to listen on; 0 takes a free one")] = 8000
    processes: Annotated[
        int,
        Setting(
            integer(1, 256),
            "Processes that serve the port, each with its own view of every worker, and all with one load. "
            "--max-inflight, --max-worker-inflight and --queue-size are divided among them, at least 1 for "
            "each; clients' limits hold for all together",
            "processes",
        ),
    ] = 1
    share: Annotated[
        Address | None,
        Setting(
            SHARE,
            "Redis or Valkey server over whose publish and subscribe the routers before one fleet tell each "
            "other of their load; needs kv-router[share]. While it cannot be reached each goes by its own. A "
            "password is better given as a variable or in the file than as a flag that a process list shows",
            secret=True,
        ),
    ] = None
    share_channel: Annotated[
        str,
        Setting(
            word("up to 128 letters, digits or any of . : _ / -", "NAME", r"[\w.:/-]{1,128}"),
            "Channel of --share; only routers with the same one hear each other",
        ),
    ] = "kv-router"
    tokenizer: Annotated[
        str | None,
        Setting(
            PATH,
            "tokenizer.json (or tekken.json, tiktoken.model), the directory it is in, or a name on the "
            "Hugging Face hub, for all models; without it each worker's own path, where it can be read here",
        ),
    ] = None
    tokenize_seconds: Annotated[
        float,
        Setting(
            number(0.001, 60),
            "How long a request waits for a worker's /tokenize where the router has no tokenizer",
            "seconds",
        ),
    ] = 0.05
    forward_input_ids: Annotated[
        str,
        Setting(
            one_of(("off", "on")),
            "Send SGLang the token ids of text prompts, so that it need not tokenise again, once its own "
            "counts have agreed with them",
        ),
    ] = "off"
    policy: Annotated[
        str,
        Setting(
            POLICY,
            "How a worker is chosen: by a rule that the router has, or by a function of yours, of (facts, "
            "weights), that returns one cost per rank",
        ),
    ] = DEFAULT_POLICY
    uncached_weight: Annotated[
        float,
        Setting(
            number(0, 1000), "Policy kv: how often each prompt token counts that the worker does not hold"
        ),
    ] = 3.0
    active_weight: Annotated[
        float,
        Setting(number(0, 1e6), "Policy kv: what each request running on a worker counts for", "tokens"),
    ] = 512.0
    allow_policy_header: Annotated[
        str,
        Setting(one_of(("off", "on")), "Whether a request may name its policy in x-kv-router-policy"),
    ] = "off"
    session_header: Annotated[
        str,
        Setting(HEADER, "Policy session: the header that tells one conversation from another"),
    ] = "x-session-id"
    occupancy_weight: Annotated[
        float,
        Setting(number(0, 1e9), "Policy kv: what a full KV cache counts for, a half-full one half", "tokens"),
    ] = 0.0
    adapter_weight: Annotated[
        float,
        Setting(
            number(0, 1e9), "Policy kv: what it counts for that a LoRA adapter has to be loaded", "tokens"
        ),
    ] = 1024.0
    adapter_slots: Annotated[
        int,
        Setting(
            integer(0, 64),
            "Policy kv: LoRA adapters that a rank has loaded at a time; those of its last requests are taken "
            "to be them",
        ),
    ] = 4
    prefill_speed: Annotated[
        float,
        Setting(
            number(1, 1e9),
            "What a rank computes of prompts; what is loaded back from a lower tier costs that much less "
            "than computing it as the tier is faster",
            "tokens/s",
        ),
    ] = 16_000.0
    host_speed: Annotated[
        float, Setting(number(1, 1e9), "What a rank loads back from the host's memory", "tokens/s")
    ] = 200_000.0
    disk_speed: Annotated[
        float, Setting(number(1, 1e9), "What a rank loads back from a disk", "tokens/s")
    ] = 20_000.0
    external_speed: Annotated[
        float, Setting(number(1, 1e9), "What a rank loads back from any other storage", "tokens/s")
    ] = 40_000.0
    dynamo_temperature: Annotated[
        float,
        Setting(
            number(0, 100),
            "Policy dynamo: temperature of the draw among costs, as shares of their spread; 0 is the least",
        ),
    ] = 0.0
    sticky_seconds: Annotated[
        float,
        Setting(
            number(0, DAY),
            "Policy sticky: how much later a first token may come from where the prompt is held",
            "seconds",
        ),
    ] = 18.0
    hash_bound: Annotated[
        float,
        Setting(
            number(1, 1000),
            "Policy prefix_hash: a rank is passed over that has so many times the mean of running requests",
        ),
    ] = 1.25
    hash_tokens: Annotated[
        int,
        Setting(integer(1, 10**6), "Policy prefix_hash: how much of a prompt's beginning decides", "tokens"),
    ] = 256
    load_seconds: Annotated[
        float,
        Setting(
            number(0, 60),
            "Time between two questions about a worker's load, where it does not tell by itself; 0: none is "
            "asked, and none listened to",
            "seconds",
        ),
    ] = 1.0
    pd_min_uncached: Annotated[
        int,
        Setting(
            integer(0, 10**7),
            "Where there are prefill and decode workers: a prompt of which a worker that can do all of a "
            "request (role both, or vLLM's decode) would compute less goes to that worker; 0 is never",
            "tokens",
        ),
    ] = 0
    predicted_ttl_seconds: Annotated[
        float,
        Setting(
            number(0, DAY), "How long a routed prompt counts as held before an event confirms it", "seconds"
        ),
    ] = 30.0
    approximate_ttl_seconds: Annotated[
        float,
        Setting(number(0, WEEK), "The same for workers without events, of which no more is known", "seconds"),
    ] = 600.0
    predicted_max_blocks: Annotated[
        int, Setting(integer(1, 10**8), "Most blocks counted as held without an event, per rank", "blocks")
    ] = 262144
    index_max_blocks: Annotated[
        int,
        Setting(
            integer(1024, 5 * 10**8),
            "Most distinct blocks kept in mind, over all workers, at 60 to 100 bytes each; over it, the ends "
            "of the prefixes matched longest ago are forgotten",
            "blocks",
        ),
    ] = 2**24
    probe_seconds: Annotated[
        float, Setting(number(0.05, 3600), "Time between two probes of a worker", "seconds")
    ] = 1.0
    connect_seconds: Annotated[
        float, Setting(number(0.05, 3600), "Limit on connecting to a worker", "seconds")
    ] = 5.0
    first_byte_seconds: Annotated[
        float,
        Setting(number(0, DAY), "Limit on the wait for a worker's answer to begin; 0 is none", "seconds"),
    ] = 0.0
    idle_seconds: Annotated[
        float, Setting(number(0, DAY), "Limit on a pause within a worker's answer; 0 is none", "seconds")
    ] = 0.0
    replay_seconds: Annotated[
        float, Setting(number(0.05, 3600), "Limit on a replay of lost events by a worker", "seconds")
    ] = 2.0
    max_body_bytes: Annotated[
        int, Setting(integer(1024, 2**32), "Largest request body taken; the default is 64 MiB", "bytes")
    ] = 64 * 2**20
    retries: Annotated[
        int,
        Setting(integer(0, 16), "Most other workers tried, before the first byte of an answer"),
    ] = 2
    hold_seconds: Annotated[
        float,
        Setting(
            number(0, DAY),
            "How long a request waits while every worker that could serve it is paused",
            "seconds",
        ),
    ] = 60.0
    leave_seconds: Annotated[
        float,
        Setting(
            number(0, 3600),
            "How long the router goes on after SIGTERM, with 503 from /ready, so that balancers turn away",
            "seconds",
        ),
    ] = 0.0
    grace_seconds: Annotated[
        int,
        Setting(integer(0, 3600), "How long requests under way may take to end after that", "seconds"),
    ] = 30
    admin_key: Annotated[
        str | None,
        Setting(
            word("16 or more characters without spaces", "KEY", r"[!-~]{16,}"),
            "Key of the /admin routes (Authorization: Bearer KEY), which exist only when there is one; "
            "better given as a variable or in the file than as a flag that a process list shows",
            secret=True,
        ),
    ] = None
    api_keys: Annotated[
        str | None,
        Setting(
            PATH,
            "File of the keys that clients need (Authorization: Bearer KEY, or x-api-key), one a line, with "
            "name=, requests-per-second=, burst= and prompt-tokens-per-minute= behind it as wanted; read "
            "again when it changes",
        ),
    ] = None
    api_key: Annotated[
        tuple[str, ...],
        Setting(
            word("8 or more characters without spaces", "KEY", KEY),
            "A key that clients may use besides; better given as a variable, which may hold several, than as "
            "a flag that a process list shows",
            repeated=True,
            secret=True,
        ),
    ] = ()
    protect_metrics: Annotated[
        str, Setting(one_of(("off", "on")), "Whether /metrics needs a client's key, too")
    ] = "off"
    forward_authorization: Annotated[
        str,
        Setting(
            one_of(("off", "on")), "Whether workers see the keys of clients where the router checks them"
        ),
    ] = "off"
    worker_api_key: Annotated[
        str | None,
        Setting(
            word("characters without spaces", "KEY", r"[!-~]+"),
            "Key of the workers' own, sent with everything that they are asked, instead of clients' keys",
            secret=True,
        ),
    ] = None
    worker_ca: Annotated[
        str | None,
        Setting(
            PATH,
            "PEM file of the authorities that workers' certificates must be signed by; else the system's",
        ),
    ] = None
    tls_cert: Annotated[
        str | None,
        Setting(PATH, "PEM file of a certificate and its chain: serve HTTPS; read again on SIGHUP"),
    ] = None
    tls_key: Annotated[
        str | None, Setting(PATH, "PEM file of the certificate's key, where that is a file of its own")
    ] = None
    tls_client_ca: Annotated[
        str | None,
        Setting(PATH, "PEM file of the authorities that clients' certificates must be signed by"),
    ] = None
    forwarded_allow: Annotated[
        tuple[IPv4Network | IPv6Network, ...],
        Setting(
            NETWORK,
            "Range of addresses of proxies in front of the router, whose X-Forwarded-* are added to; those "
            "of others are replaced. Repeat the flag for several",
            repeated=True,
        ),
    ] = ()
    total_seconds: Annotated[
        float,
        Setting(
            number(0, DAY),
            "Limit on a request, from its arrival to the end of its answer; 0 is none",
            "seconds",
        ),
    ] = 0.0
    client_idle_seconds: Annotated[
        float,
        Setting(
            number(0, DAY),
            "Limit on how long a client may take nothing of an answer that is there for it; it is then cut, "
            "at the worker too; 0 is none",
            "seconds",
        ),
    ] = 60.0
    route_limits: Annotated[
        tuple[RouteLimits, ...],
        Setting(
            ROUTE_LIMITS,
            "Time limits of one route in seconds, of connect=, first-byte=, idle= and total=, such as "
            "/v1/embeddings,first-byte=5,total=30; repeat the flag for every route; the file a list of such "
            "texts or of mappings with path and the same keys",
            repeated=True,
        ),
    ] = ()
    record: Annotated[
        str | None,
        Setting(
            PATH,
            "Directory to keep a record in of all events and decisions, for kv-router replay: blocks as "
            "codes, neither text nor token ids",
        ),
    ] = None
    record_max_bytes: Annotated[
        int,
        Setting(
            integer(16 * 2**20, 2**50),
            "Most that records may take there; the oldest parts are deleted; the default is 1 GiB",
            "bytes",
        ),
    ] = 2**30
    log_format: Annotated[
        str, Setting(one_of(("human", "json")), "Lines for people, or one JSON object a line")
    ] = "human"
    log_requests: Annotated[
        float,
        Setting(
            number(0, 1),
            "Share of requests that get a line in the log when they end; if it is not 0, all that fail do",
        ),
    ] = 0.0
    otlp: Annotated[
        str | None,
        Setting(
            OTLP,
            "Where to send OpenTelemetry spans (OTLP over HTTP), such as http://127.0.0.1:4318; needs the "
            "extra kv-router[otel]. The variables OTEL_* hold, too",
        ),
    ] = None
    dashboard: Annotated[
        str,
        Setting(
            one_of(("auto", "off", "on")),
            "The page at / that shows the fleet; auto is on where --host is an address of this machine alone",
        ),
    ] = "auto"
    log_level: Annotated[
        str, Setting(one_of(("debug", "info", "warning", "error")), "Least severe lines logged on stderr")
    ] = "info"
    retry_share: Annotated[
        float, Setting(number(0, 1), "Most retries, as a share of the requests of the last ten seconds")
    ] = 0.2
    retry_floor: Annotated[
        float, Setting(number(0, 1e6), "Retries a second that are allowed besides, however few requests come")
    ] = 10.0
    breaker_failures: Annotated[
        int, Setting(integer(0, 10**6), "Failures in a row that take a worker out; 0 is never")
    ] = 5
    breaker_share: Annotated[
        float,
        Setting(
            number(0, 1),
            "Share of failures among a worker's requests of the last ten seconds, of which there must be 20, "
            "that takes it out; 0 is never",
        ),
    ] = 0.5
    breaker_outlier: Annotated[
        float,
        Setting(
            number(0, 1000),
            "A worker that fails so many times as often as the others of its model, and a tenth of its "
            "requests, is taken out; 0 is never",
        ),
    ] = 5.0
    breaker_codes: Annotated[
        tuple[int, ...],
        Setting(
            integer(400, 599),
            "Status of a worker's answer that counts as its failure; repeat the flag for several",
            repeated=True,
        ),
    ] = (500, 502, 504)
    breaker_seconds: Annotated[
        float,
        Setting(
            number(0.05, 3600),
            "How long a worker is taken out at first; doubled up to a minute by each trial that fails. The "
            "last worker of a model is never taken out",
            "seconds",
        ),
    ] = 5.0
    worker_allow: Annotated[
        tuple[IPv4Network | IPv6Network, ...],
        Setting(
            NETWORK,
            "Range of addresses, such as 10.0.0.0/8, in which POST /admin/workers may add workers and their "
            "events may be; repeat the flag for several. Without it none can be added",
            repeated=True,
        ),
    ] = ()
    drain_seconds: Annotated[
        float,
        Setting(
            number(0, DAY),
            "How long the requests of a worker that is removed may take to end before they are cut",
            "seconds",
        ),
    ] = 300.0
    max_inflight: Annotated[
        int,
        Setting(
            integer(0, 10**6),
            "Most requests under way at all workers together; what is over it waits; 0 is no limit. Divided "
            "among --processes: one that has its part under way lets requests wait while another has room",
            "requests",
        ),
    ] = 0
    max_worker_inflight: Annotated[
        int,
        Setting(
            integer(0, 10**6),
            "Most requests under way at one worker; what finds all of them full waits; 0 is no limit; "
            "prefill/decode pairs are not counted. Divided among --processes",
            "requests",
        ),
    ] = 0
    queue_size: Annotated[
        int,
        Setting(
            integer(0, 10**6),
            "Most requests of one model that wait for room, by the priority in x-kv-router-priority (-999 to "
            "999, higher first); more are answered with 429. Divided among --processes",
            "requests",
        ),
    ] = 1024
    queue_seconds: Annotated[
        float,
        Setting(
            number(0, DAY),
            "Longest wait for room, then 429; while every worker is paused, --hold-seconds more, then 503",
            "seconds",
        ),
    ] = 30.0
    epp_port: Annotated[
        int,
        Setting(
            integer(0, 65535),
            "Port of the endpoint picker, which tells Envoy over gRPC (ext_proc, the Gateway API's inference "
            "extension) where a request should go; 0 is none; needs kv-router[epp]",
        ),
    ] = 0
    worker_file: Annotated[
        str | None,
        Setting(
            PATH,
            "YAML or JSON file with a list of workers, as texts or mappings like those of the --config file; "
            "it is followed: workers that are added, changed or removed there come and go within a second",
        ),
    ] = None
    discover: Annotated[
        str,
        Setting(
            one_of(("off", "kubernetes")),
            "Follow the workers of a Kubernetes cluster, as the settings kubernetes-* say; with "
            "--worker-allow only those within its ranges",
        ),
    ] = "off"
    kubernetes_selector: Annotated[
        str | None,
        Setting(
            word("a label selector such as app=vllm,tier in (a,b)", "SELECTOR", r"[ -~]+"),
            "Labels of the pods, or of the EndpointSlices, that are workers",
        ),
    ] = None
    kubernetes_namespaces: Annotated[
        tuple[str, ...],
        Setting(
            word("a namespace, or * for all", "NAMESPACE", r"\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"),
            "Namespace that they are in; repeat the flag for several; the router's own without it",
            repeated=True,
        ),
    ] = ()
    kubernetes_kind: Annotated[
        str,
        Setting(
            one_of(("pods", "endpointslices")),
            "What is followed: pods, or EndpointSlices (the selector kubernetes.io/service-name=NAME means "
            "those of a Service)",
        ),
    ] = "pods"
    kubernetes_port: Annotated[
        str | None,
        Setting(
            word("a port's number or name", "PORT", r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"),
            "Port that the engines serve on; the first that is declared without it. The annotation "
            "kv-router/port of a pod, or of a slice, is stronger, as are kv-router/kv-port, replay-port, "
            "scheme, role, model, engine, topic, block-size and dp",
        ),
    ] = None
    kubernetes_kv_port: Annotated[
        int, Setting(integer(0, 65535), "Port of rank 0's KV events; 0 is what the worker says itself")
    ] = 0
    kubernetes_replay_port: Annotated[
        int, Setting(integer(0, 65535), "Port of rank 0's replay of events; 0 is what the worker says")
    ] = 0
    kubernetes_role_label: Annotated[
        str | None,
        Setting(
            word("a label's name", "LABEL", LABEL),
            "Label that holds the role of a worker: prefill, decode or both",
        ),
    ] = "kv-router/role"
    kubernetes_model_label: Annotated[
        str | None,
        Setting(
            word("a label's name", "LABEL", LABEL),
            "Label that holds a name which requests may use for the model, besides those the worker says",
        ),
    ] = None
    kubernetes_api: Annotated[
        str | None,
        Setting(
            word("http://host:port or https://host:port", "URL", r"https?://[!-~]+"),
            "API server, such as http://127.0.0.1:8001 of kubectl proxy; in a pod the cluster's without it",
        ),
    ] = None
    kubernetes_token: Annotated[
        str | None,
        Setting(
            PATH, "File of the token that the API server wants; in a pod the service account's without it"
        ),
    ] = None
    kubernetes_ca: Annotated[
        str | None,
        Setting(PATH, "PEM file of the authorities that the API server's certificate must be signed by"),
    ] = None


HINTS = get_type_hints(Config, include_extras=True)
OPTIONS = {
    field.name: Option(
        field.name,
        HINTS[field.name].__metadata__[0],
        None if field.default is MISSING or field.default == () else field.default,
    )
    for field in fields(Config)
}
CONFIG_FILE = Option(
    "config", Setting(PATH, "YAML file with any of these settings; its keys are the names of the flags")
)
ALL_OPTIONS = (*OPTIONS.values(), CONFIG_FILE)
# What the key `version` of a file may be: files of another would mean something else by the same words.
FILE_VERSION = "1"


def load(flags: Flags, environ: Mapping[str, str]) -> Config:
    """Return the settings given by flags (by field name; plus `config`), environment and file.

    Raises ConfigError, one line, for the first wrong value, and when there is no worker at all.
    """
    config = Config(**{"workers": (), **given_values(flags, environ)})
    check_workers(config)
    return config


def given_values(flags: Flags, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return what flags, environment and file give, by field name. Raises ConfigError as `load` does."""
    layers = [_from_flags(flags), _from_environment(environ)]
    paths = [layer.pop("config") for layer in layers if "config" in layer]
    if paths:
        layers.append(read_settings(CONFIG_FILE.read(paths[0])))
    return ChainMap(*map(read_layer, layers))


def config_path(flags: Flags, environ: Mapping[str, str]) -> str | None:
    """Return the path of the file that flags or environment name. Raises ConfigError for what is no path."""
    for layer in (_from_flags(flags), _from_environment(environ)):
        if "config" in layer:
            path: str = CONFIG_FILE.read(layer["config"])
            return path
    return None


def read_settings(path: str) -> dict[str, Given]:
    """Return what a file gives, without its version. Raises ConfigError as `read_file` does."""
    given = read_file(path)
    version = given.pop("version", None)
    if version is not None and version.value != FILE_VERSION:
        raise ConfigError(f"{version.source}: expected {FILE_VERSION}, the version that this router reads")
    return given


def flag_table() -> str:
    """Return the reference of flags and variables as a Markdown table, for docs/options.md."""
    rows = [("Flag", "Variable", "Default", "Expected", "Meaning"), ("---",) * 5]
    rows += [
        (
            f"`{option.flag} {option.setting.kind.placeholder}`",
            f"`{option.variable}`",
            f"`{option.shown_default}`" if option.default is not None else "",
            option.limits,
            option.setting.help,
        )
        for option in ALL_OPTIONS
    ]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def _from_flags(flags: Flags) -> dict[str, Given]:
    named = {option.name: option.flag for option in ALL_OPTIONS}
    return {name: _given(named[name], value) for name, value in flags.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    found = {}
    for option in ALL_OPTIONS:
        text = environ.get(option.variable, "")
        if text.strip() and not _is_service_link(option.variable, environ):
            found[option.name] = _given(option.variable, text.split() if option.setting.repeated else text)
    return found


def _is_service_link(variable: str, environ: Mapping[str, str]) -> bool:
    """Whether Kubernetes set it: beside a Service named kv-router, KV_ROUTER_PORT is tcp://address:port."""
    return "KV_ROUTER_SERVICE_HOST" in environ and environ[variable].startswith(("tcp://", "udp://"))


def _given(source: str, value: str | Sequence[str]) -> Given:
    return Given(source, value if isinstance(value, str) else [Given(source, text) for text in value])


def read_layer(layer: Mapping[str, Given]) -> dict[str, Any]:
    """Return the values of what one place gives. Raises ConfigError for the first that is wrong."""
    for name, given in layer.items():
        if name not in OPTIONS:
            near = get_close_matches(name, OPTIONS, n=1) or ["one that kv-router config schema lists"]
            raise ConfigError(f"{given.source}: unknown key, expected {near[0]}")
    return {name: OPTIONS[name].read(given) for name, given in layer.items()}


def check_workers(config: Config) -> None:
    """Raise ConfigError when there can be no worker, or one is given twice."""
    elsewhere = config.worker_file is not None or config.discover != "off" or config.admin_key is not None
    if not config.workers and not elsewhere:
        raise ConfigError(
            "no worker given: expected --worker URL, KV_ROUTER_WORKER, or workers in a --config file "
            "(or --worker-file, --discover, or --admin-key, to add them later)"
        )
    if config.processes > 1 and any(worker.bind for worker in config.workers):
        raise ConfigError("bind=true: expected --processes 1, since one process only can have that address")
    counted = Counter(worker.url.rstrip("/") for worker in config.workers)
    for url, times in counted.items():
        if times > 1:
            raise ConfigError(f"worker {url} given {times} times: expected each --worker URL once")
