"""TLS towards clients and towards workers: files become contexts, and what is wrong with them one line.

They are regular files: OpenSSL opens them by their names, and they are read again.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from typing import NoReturn

from router.errors import ConfigError
from router.named_file import is_regular, read_named

_MOST_BYTES = 2**24  # the authorities of all the world are a quarter of a MiB
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files: a certificate with its chain, its key, and who signs clients' certificates.

    `key` is None when it stands in the certificate's file; `client_ca` is None when clients need none.
    """

    certificate: str
    key: str | None = None
    client_ca: str | None = None


@dataclass(frozen=True, slots=True)
class Pem:
    """What is in those files; `authorities` is None when clients need no certificate."""

    certificate: bytes
    key: bytes
    authorities: bytes | None


class ServerTls:
    """What clients see. `context` is to be given to the server; `reload` changes it for new connections.

    `pem` is the same for a server that makes its contexts itself, and another one once it has changed.
    """

    __slots__ = ("_files", "_latest", "context", "pem")

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self.context, self.pem = self._read()
        self._latest = self.context
        self.context.sni_callback = self._give

    def _read(self) -> tuple[ssl.SSLContext, Pem]:
        return server_context(self._files), _pem(self._files)

    def reload(self) -> None:
        """Read the files again; what is wrong is logged, and the certificate stays what it was."""
        try:
            self._latest, self.pem = self._read()
        except ConfigError as error:
            _log.error("the certificate stays what it was: %s", error.message)
        else:
            _log.info("read the certificate and its key again")

    def _give(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Give a connection that is being made the latest files; OpenSSL asks also where no name is given."""
        if self._latest is not self.context:
            connection.context = self._latest


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a context of TLS 1.2 and newer. Raises ConfigError, one line, naming the flag and the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    contents("--tls-cert", files.certificate)
    if files.key is not None:
        contents("--tls-key", files.key)
    try:
        context.load_cert_chain(files.certificate, files.key, _no_password)
    except ssl.SSLError as error:
        both = f"--tls-cert {files.certificate}, --tls-key {files.key or files.certificate}"
        raise ConfigError(f"{both}: expected a PEM certificate and its key: {_reason(error)}") from None
    if files.client_ca is not None:
        _load_authorities(context, "--tls-client-ca", files.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0  # a session taken up again would not be verified again
        context.options |= ssl.OP_NO_TICKET
    return context


def trusting(flag: str, authorities: str) -> ssl.SSLContext:
    """Return a context that trusts servers with these authorities only. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load_authorities(context, flag, authorities)
    return context


def _load_authorities(context: ssl.SSLContext, flag: str, path: str) -> None:
    contents(flag, path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{flag} {path}: expected PEM certificates: {_reason(error)}") from None


def _pem(files: TlsFiles) -> Pem:
    authorities = None if files.client_ca is None else contents("--tls-client-ca", files.client_ca)
    certificate = contents("--tls-cert", files.certificate)
    return Pem(certificate, contents("--tls-key", files.key or files.certificate), authorities)


def contents(flag: str, path: str) -> bytes:
    """Return what is in a file. Raises ConfigError, one line, naming the flag and the file."""
    try:
        if not is_regular(path):
            raise ConfigError(f"{flag} {path}: expected a regular file")
        return read_named(path, _MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"{flag} {path}: the file cannot be read: {error.strerror}") from None


def _no_password() -> NoReturn:
    raise ConfigError("--tls-key: the key is encrypted: expected one without a passphrase")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "it is none").replace("_", " ").lower()
