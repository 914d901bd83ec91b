"""What settings may be, beyond numbers: how each is read, and what is said of one that is wrong."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network

from router.core.cost import POLICIES
from router.engines.endpoint import MOST_PORT
from router.fleet import spec
from router.proxy.route_limits import EXPECTED as ROUTE_LIMITS_FORM
from router.proxy.route_limits import RouteLimits, parse_route_limits, route_limits_from_mapping
from router.setting import Kind, word
from router.share.address import parse_address

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
# As the API server reads it: a, !a, a=b, a==b, a!=b, a in (b,c), a notin (b), a>1, a<1, with commas between.
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"
_AMONG = rf" +(in|notin) *\( *{_VALUE}( *, *{_VALUE})* *\)"
_TERM = rf"(! *{LABEL}|{LABEL}( *(=|==|!=) *{_VALUE}| *[<>] *-?[0-9]+|{_AMONG})?)"
SELECTOR = word("a label selector such as app=vllm,tier in (a,b)", "SELECTOR", rf" *{_TERM}( *, *{_TERM})* *")


def _read_port(text: str) -> str:
    number = text.isdecimal()
    if re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text) and (
        not number or 1 <= int(text) <= MOST_PORT
    ):
        return text
    raise ValueError(text)


PORT = Kind(f"a port's name, or its number from 1 to {MOST_PORT}", _read_port, "PORT")
_HOST = r"[\w:%-]{1,63}(\.[\w:%-]{1,63})*\.?"
HOST = word("a host name or address", "HOST", _HOST)
ALLOWED_HOST = word("a host name or address, or *", "HOST", rf"\*|{_HOST}")
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
