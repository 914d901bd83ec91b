from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from pathlib import Path

import pytest

from router.errors import ConfigError
from router.proxy.edge import EdgeProtocol
from router.proxy.tls import ServerTls, TlsFiles, server_context
from router.proxy.tls import trusting as trusting_only
from router.proxy.upstream import Upstream
from tests.proxy.scripted import OK, Worker
from tests.proxy.serving import Proxy, served
from tests.waiting import DEADLINE_SECONDS, until

FILES = Path(__file__).parents[1] / "fixtures" / "tls"
PEM, KEY = str(FILES / "localhost.pem"), str(FILES / "localhost.key")
OTHER_PEM, OTHER_KEY = str(FILES / "other.pem"), str(FILES / "other.key")
REQUEST = b"GET /g HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


def trusting(pem: str, certificate: tuple[str, str] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=pem)
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


async def ask(port: int, context: ssl.SSLContext | None) -> bytes:
    """Return the answer's first line; b"" when the connection is refused or cut."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except (ssl.SSLError, ConnectionError):
            return b""
        try:
            writer.write(REQUEST)
            return (await reader.read()).split(b"\r\n")[0]
        except (ssl.SSLError, ConnectionError):
            return b""
        finally:
            writer.transport.abort()


def copied(directory: Path, pem: str = PEM, key: str = KEY) -> TlsFiles:
    """Put a certificate where it can be replaced."""
    files = TlsFiles(str(directory / "cert.pem"), str(directory / "cert.key"))
    replace(files, pem, key)
    return files


def replace(files: TlsFiles, pem: str, key: str) -> None:
    assert files.key is not None
    shutil.copy(pem, files.certificate)
    shutil.copy(key, files.key)


async def test_a_worker_is_told_that_the_client_came_over_tls() -> None:
    context = server_context(TlsFiles(PEM, KEY))
    async with Worker.up(OK) as worker, served(Proxy(Upstream(worker.url)), tls=context) as port:
        assert await ask(port, trusting(PEM)) == b"HTTP/1.1 200 OK"
        assert b"x-forwarded-proto: https" in worker.requests[0][1]
        assert await ask(port, None) == b""
        assert await ask(port, trusting(OTHER_PEM)) == b""
        assert await ask(port, trusting(PEM)) == b"HTTP/1.1 200 OK"


async def test_a_certificate_is_replaced_for_new_connections_and_the_others_go_on(tmp_path: Path) -> None:
    files = copied(tmp_path)
    tls = ServerTls(files)
    async with Worker.up(OK) as worker, served(Proxy(Upstream(worker.url)), tls=tls.context) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(PEM))
        replace(files, OTHER_PEM, OTHER_KEY)
        tls.reload()
        assert await ask(port, trusting(OTHER_PEM)) == b"HTTP/1.1 200 OK"
        assert await ask(port, trusting(PEM)) == b""
        writer.write(REQUEST)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
        writer.close()


async def test_a_wrong_replacement_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = copied(tmp_path)
    tls = ServerTls(files)
    replace(files, OTHER_PEM, KEY)
    tls.reload()
    assert "the certificate stays what it was" in caplog.text
    async with Worker.up(OK) as worker, served(Proxy(Upstream(worker.url)), tls=tls.context) as port:
        assert await ask(port, trusting(PEM)) == b"HTTP/1.1 200 OK"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = copied(tmp_path)
    tls = ServerTls(files)
    assert files.key is not None
    Path(files.key).unlink()
    os.mkfifo(files.key)
    writes = os.open(files.key, os.O_RDWR)
    try:
        os.write(writes, Path(KEY).read_bytes())
        tls.reload()
    finally:
        os.close(writes)
    assert f"the certificate stays what it was: --tls-key {files.key}: expected a regular file" in caplog.text
    with pytest.raises(ConfigError, match=r"^--worker-ca .*: expected a regular file$"):
        trusting_only("--worker-ca", files.key)


async def test_only_clients_with_a_certificate_are_served_where_one_is_asked_for(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    shutil.copy(PEM, authority)
    tls = ServerTls(TlsFiles(PEM, KEY, str(authority)))
    async with Worker.up(OK) as worker, served(Proxy(Upstream(worker.url)), tls=tls.context) as port:
        ours, others = trusting(PEM, (PEM, KEY)), trusting(PEM, (OTHER_PEM, OTHER_KEY))
        assert await ask(port, trusting(PEM)) == b""
        assert await ask(port, others) == b""
        assert await ask(port, ours) == b"HTTP/1.1 200 OK"
        shutil.copy(OTHER_PEM, authority)
        tls.reload()
        assert await ask(port, others) == b"HTTP/1.1 200 OK"
        assert await ask(port, ours) == b""
        assert len(worker.requests) == 2


async def test_a_worker_is_trusted_by_the_authorities_given_and_no_others() -> None:
    context = server_context(TlsFiles(PEM, KEY))
    async with Worker.up(OK, tls=context) as worker:
        for pem, reached in ((PEM, True), (OTHER_PEM, False)):
            async with served(
                Proxy(Upstream(worker.url, tls=trusting_only("--worker-ca", pem))), EdgeProtocol
            ) as port:
                assert (await ask(port, None)).startswith(b"HTTP/1.1 200" if reached else b"HTTP/1.1 502")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (TlsFiles("nowhere.pem", KEY), "--tls-cert nowhere.pem: the file cannot be read: No such file"),
        (TlsFiles(PEM, "nowhere.key"), "--tls-key nowhere.key: the file cannot be read: No such file"),
        (TlsFiles(PEM, OTHER_KEY), "key values mismatch"),
        (TlsFiles(PEM), "expected a PEM certificate and its key"),
        (TlsFiles(KEY, KEY), "expected a PEM certificate and its key"),
        (TlsFiles(PEM, str(FILES / "encrypted.key")), "expected one without a passphrase"),
        (TlsFiles(PEM, KEY, KEY), "--tls-client-ca .*: expected PEM certificates"),
        (TlsFiles(PEM, KEY, "nowhere"), "--tls-client-ca nowhere: the file cannot be read"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(files: TlsFiles, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        server_context(files)
    assert "\n" not in caught.value.message


def test_what_is_wrong_with_the_workers_authorities_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"--worker-ca .*: expected PEM certificates"):
        trusting_only("--worker-ca", KEY)


def test_a_key_may_stand_in_the_certificates_file(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(Path(PEM).read_bytes() + Path(KEY).read_bytes())
    server_context(TlsFiles(str(both)))


async def test_a_connection_is_closed_also_if_its_client_does_not_read() -> None:
    async with Worker.up(OK) as worker:
        open_ones: list[EdgeProtocol] = []

        class Noted(EdgeProtocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                open_ones.append(self)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                open_ones.remove(self)

        context = server_context(TlsFiles(PEM, KEY))
        async with served(Proxy(Upstream(worker.url)), Noted, context) as port:
            with await asyncio.to_thread(_idle_client, port) as client:
                assert len(open_ones) == 1
                open_ones[0].shutdown()
                await until(lambda: not open_ones, "the connection closed")
                assert client.recv(1) == b""


def _idle_client(port: int) -> ssl.SSLSocket:
    """Ask once, and keep the connection without reading on it."""
    bare = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS)
    client = trusting(PEM).wrap_socket(bare, server_hostname="localhost")
    client.sendall(REQUEST.replace(b"connection: close\r\n", b""))
    answer = b""
    while not answer.endswith(b"ok"):
        answer += client.recv(4096)
    return client
