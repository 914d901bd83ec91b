"""Settings given as environment variables, KV_ROUTER_*, and which variables of such names are none.

Kubernetes sets variables of its own beside every Service of a namespace: next to one named kv-router
KV_ROUTER_PORT is tcp://address:port, next to kv-router-epp KV_ROUTER_EPP_PORT is. They are nobody's settings.
"""

from __future__ import annotations

import logging
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from router.config import ALL_OPTIONS
from router.setting import Given

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_log = logging.getLogger(__name__)
_PREFIX, _HOST = "KV_ROUTER_", "_SERVICE_HOST"
# Of the commands that ask a router.
URL, KEY = f"{_PREFIX}URL", f"{_PREFIX}KEY"
_KNOWN = [name.removeprefix(_PREFIX) for name in (*(option.variable for option in ALL_OPTIONS), URL, KEY)]
_LINK_URL = re.compile(r"(tcp|udp|sctp)://")
_LINK = re.compile(r"_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")


def from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """Return what variables give, by field name; what is blank, or Kubernetes' own, gives nothing."""
    found = {}
    for option in ALL_OPTIONS:
        text = environ.get(option.variable, "")
        if text.strip() and not _is_service_link(option.variable, environ):
            found[option.name] = as_given(option.variable, text.split() if option.setting.repeated else text)
    return found


def as_given(source: str, value: str | Sequence[str]) -> Given:
    """Return what was given at a place, a text or several."""
    return Given(source, value if isinstance(value, str) else [Given(source, text) for text in value])


def warn_of_strays(environ: Mapping[str, str]) -> None:
    """Say in a line for each which variables are named as settings are, are none, and so do nothing."""
    for line in strays(environ):
        _log.warning("%s", line)


def strays(environ: Mapping[str, str]) -> list[str]:
    """Return those lines; no value is in them."""
    given = (name for name in sorted(environ) if name.startswith(_PREFIX) and environ[name].strip())
    unknown = (name for name in given if name.removeprefix(_PREFIX) not in _KNOWN)
    return [_stray(name) for name in unknown if not _is_service_link(name, environ)]


def _stray(name: str) -> str:
    near = get_close_matches(name.removeprefix(_PREFIX), _KNOWN, n=1)
    expected = f"{_PREFIX}{near[0]}" if near else "one that kv-router serve --help lists"
    return f"{name}: unknown variable, ignored; expected {expected}"


def _is_service_link(name: str, environ: Mapping[str, str]) -> bool:
    """Whether Kubernetes set it for a Service, whose address then stands in another variable."""
    if name.endswith("_PORT") and _LINK_URL.match(environ[name]):
        return name.removesuffix("_PORT") + _HOST in environ
    services = (other.removesuffix(_HOST) for other in environ if other.endswith(_HOST))
    return any(
        name.startswith(service) and _LINK.fullmatch(name.removeprefix(service)) for service in services
    )
