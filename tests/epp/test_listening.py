"""Its port: whose it is, and the certificate that is shown on it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.e2e.processes import router
from tests.epp.test_envoy import free_port
from tests.waiting import until_awaited

TLS = Path(__file__).parents[1] / "fixtures" / "tls"
NOBODY = ["http://127.0.0.1:1"]


async def serves(channel: grpc.aio.Channel, seconds: float = 5.0) -> bool:
    """Whether it answers, to who trusts it and is trusted."""
    try:
        answer = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(), timeout=seconds
        )
    except grpc.aio.AioRpcError:
        return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def channel_of(port: int, name: str) -> grpc.aio.Channel:
    """Return a channel with one certificate, which trusts that one alone."""
    pem, key = (TLS / f"{name}.pem").read_bytes(), (TLS / f"{name}.key").read_bytes()
    return grpc.aio.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(pem, key, pem))


async def anew(port: int, name: str) -> bool:
    async with channel_of(port, name) as channel:
        return await serves(channel)


async def test_a_certificate_that_is_read_again_is_shown_to_envoy_too(tmp_path: Path) -> None:
    def put(name: str) -> None:
        for ending in ("pem", "key"):
            shutil.copy(TLS / f"{name}.{ending}", tmp_path / f"cert.{ending}")

    put("localhost")
    port, pem, key = free_port(), str(tmp_path / "cert.pem"), str(tmp_path / "cert.key")
    files = ("--tls-cert", pem, "--tls-key", key, "--tls-client-ca", pem)
    async with router(NOBODY, "--epp-port", str(port), *files) as front, channel_of(port, "localhost") as old:
        assert await serves(old)
        assert not await anew(port, "other")
        put("other")
        front.process.send_signal(signal.SIGHUP)
        await until_awaited(lambda: anew(port, "other"), "the certificate was replaced")
        assert not await anew(port, "localhost")
        assert await serves(old)


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_two_routers_do_not_share_a_port_by_chance(processes: str) -> None:
    port = free_port()
    async with router(NOBODY, "--epp-port", str(port), "--processes", processes):
        for others in ("1", "2"):
            with pytest.raises(AssertionError) as caught:  # "listening" never comes
                async with router(NOBODY, "--epp-port", str(port), "--processes", others):
                    pass
            assert f"kv-router: cannot listen on 127.0.0.1:{port} for --epp-port\n" in str(caught.value)
