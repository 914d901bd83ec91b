"""`kv-router health`: whether the router on this machine answers, for a container's health check."""

from __future__ import annotations

import os
import socket
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import click

from router.config import OPTIONS
from router.discreet import discreet
from router.errors import ConfigError
from router.layers import given_values
from router.printable import printable

_SECONDS = 3.0
_OK = 200
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
EXIT_UNHEALTHY = 1


def health_command() -> click.Command:
    """Return the command."""
    url = click.Option(["--url"], metavar="URL", help="Which router; else the one that this environment has.")
    return click.Command(
        "health",
        params=[url],
        callback=_health,
        help="Ask a router's /health: exit code 0 if it answers, else 1. Where it listens is what the "
        "environment says, and the file of KV_ROUTER_CONFIG; flags given to it are not known here.",
    )


def _health(url: str | None) -> None:
    asked, wants_certificate = (url, False) if url is not None else _own_url()
    parts = urlsplit(asked)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise ConfigError(
            f"--url: expected http://host:port or https://host:port, got {discreet(asked)!r:.80}"
        )
    try:
        why = _reached(asked) if wants_certificate else _answered(asked)
    except (OSError, HTTPException) as error:
        why = str(error) or type(error).__name__
    click.echo(printable(f"{asked}: {why or 'healthy'}"))
    sys.exit(EXIT_UNHEALTHY if why else 0)


def _own_url() -> tuple[str, bool]:
    """Return where the router of this environment listens, and whether it wants a client's certificate."""
    values = given_values({}, os.environ)
    host, port = (str(values.get(name, OPTIONS[name].default)) for name in ("host", "port"))
    host = _EVERYWHERE.get(host, host)
    scheme = "https" if values.get("tls_cert") else "http"
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}", values.get("tls_client_ca") is not None


def _answered(url: str) -> str:
    """Ask, and say what is wrong with the answer. Its certificate is not what is being checked."""
    parts = urlsplit(url)
    connection = (
        HTTPConnection(parts.netloc, timeout=_SECONDS)
        if parts.scheme == "http"
        else HTTPSConnection(parts.netloc, timeout=_SECONDS, context=_trusting())
    )
    try:
        connection.request("GET", "/health")
        status = connection.getresponse().status
    finally:
        connection.close()
    return "" if status == _OK else f"/health answers {status}"


def _reached(url: str) -> str:
    """Only connect: without a certificate there will be no answer."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 443), _SECONDS):
        return ""


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
