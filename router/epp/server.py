"""The gRPC side: ext_proc and health checks on one port."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from router.epp.stream import Stream
from router.listening import place, taken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

    from router.epp.picker import Picker
    from router.proxy.tls import Pem, ServerTls

# Names that the protocol gives to checks; "" is the server as a whole.
_LIVE = frozenset({"", "liveness"})
_READY = frozenset({"readiness", "envoy.service.ext_proc.v3.ExternalProcessor"})
_SERVICES = _LIVE | _READY
_LOOK_SECONDS = 0.2
# A message is one piece of a body, or all of it: what is a little too large is to be told so by the protocol.
_SPARE_BYTES, _MOST_BYTES = 2**20, 2**31 - 1
_log = logging.getLogger(__name__)


class _Processor:
    def __init__(self, picker: Picker) -> None:
        self._picker = picker

    async def Process(  # noqa: N802 - the name is the protocol's
        self, messages: AsyncIterator[ext_proc.ProcessingRequest], _context: object
    ) -> AsyncIterator[ext_proc.ProcessingResponse]:
        """Serve one request of Envoy's from its headers to the end of its answer."""
        stream = Stream(self._picker)
        try:
            async for message in messages:
                for response in await stream.answer(message):
                    yield response
        finally:
            stream.close()


class _Health:
    def __init__(self, picker: Picker) -> None:
        self._picker = picker

    async def Check(  # noqa: N802 - see above
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Say whether the process lives, or whether it can pick."""
        if request.service not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return self._state(request.service)

    async def List(  # noqa: N802 - see above
        self, _request: health_pb2.HealthListRequest, _context: object
    ) -> health_pb2.HealthListResponse:
        """Say it of all names."""
        return health_pb2.HealthListResponse(statuses={name: self._state(name) for name in _SERVICES})

    async def Watch(  # noqa: N802 - see above
        self, request: health_pb2.HealthCheckRequest, _context: object
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Say it, and again whenever it has changed."""
        said = None
        while True:
            state = self._state(request.service)
            if state != said:
                said = state
                yield state
            await asyncio.sleep(_LOOK_SECONDS)

    def _state(self, service: str) -> health_pb2.HealthCheckResponse:
        states = health_pb2.HealthCheckResponse
        if service not in _SERVICES:
            return states(status=states.SERVICE_UNKNOWN)
        serves = service in _LIVE or self._picker.ready
        return states(status=states.SERVING if serves else states.NOT_SERVING)


async def started(
    picker: Picker, host: str, port: int, tls: ServerTls | None, *, shared: bool
) -> grpc.aio.Server:
    """Return a server that has been started; `shared`: on a port that others listen on, too.

    Raises ConfigError when it cannot listen there.
    """
    most = min(picker.most_bytes + _SPARE_BYTES, _MOST_BYTES)
    options = [("grpc.max_receive_message_length", most), ("grpc.so_reuseport", int(shared))]
    server = grpc.aio.server(options=options)
    ext_proc_grpc.add_ExternalProcessorServicer_to_server(_Processor(picker), server)
    health_pb2_grpc.add_HealthServicer_to_server(_Health(picker), server)
    where = place(host, port)
    try:
        if tls is None:
            number = server.add_insecure_port(where)
        else:
            number = server.add_secure_port(where, _credentials(tls))
    except RuntimeError:
        raise taken(host, port, "--epp-port") from None
    await server.start()
    _log.info("picking endpoints on %s:%d", host, number)
    return server


def _credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Return what each handshake asks for the certificate, which may have been read again."""
    given = tls.pem

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        if given is tls.pem:
            return None
        given = tls.pem
        return _configuration(given)

    required = given.authorities is not None
    return grpc.dynamic_ssl_server_credentials(_configuration(given), changed, required)


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.authorities)
