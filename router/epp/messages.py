"""Messages of ext_proc, made and read. Facts: envoy.service.ext_proc.v3, as of Envoy 1.40."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from google.protobuf import struct_pb2

from router.api.answers import error_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from router.errors import RouterError
    from router.proxy.headers import Field

DESTINATION = "x-gateway-destination-endpoint"
_SUBSET = "x-gateway-destination-endpoint-subset"
_LB, _HINT = "envoy.lb", "envoy.lb.subset_hint"
# What Envoy takes in one piece of a body that is sent back to it.
_PIECE_BYTES = 62_000


def fields(headers: ext_proc.HttpHeaders) -> list[Field]:
    """Return the headers of a message; newer Envoys send raw values, older ones text."""
    return [(each.key.encode(), each.raw_value or each.value.encode()) for each in headers.headers.headers]


def subset(request: ext_proc.ProcessingRequest) -> frozenset[str] | None:
    """Return the endpoints that may be picked from, None for any."""
    hint = request.metadata_context.filter_metadata.get(_HINT)
    if hint is None or _SUBSET not in hint.fields:
        return None
    value = hint.fields[_SUBSET]
    texts = [each.string_value for each in value.list_value.values] or value.string_value.split(",")
    return frozenset(text.strip() for text in texts if text.strip())


def mutation(headers: Iterable[Field]) -> ext_proc.HeaderMutation:
    """Return what sets headers, whatever they were."""
    overwrite = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    return ext_proc.HeaderMutation(
        set_headers=[
            base_pb2.HeaderValueOption(
                header=base_pb2.HeaderValue(key=name.decode(), raw_value=value), append_action=overwrite
            )
            for name, value in headers
        ]
    )


def metadata(endpoint: str) -> struct_pb2.Struct:
    """Return the choice as dynamic metadata."""
    found = struct_pb2.Struct()
    found.get_or_create_struct(_LB)[DESTINATION] = endpoint
    return found


def common(headers: Iterable[Field] = ()) -> ext_proc.CommonResponse:
    """Return an answer that lets the request go on, with other headers."""
    return ext_proc.CommonResponse(header_mutation=mutation(headers))


def pieces(body: bytes, *, last: bool) -> Iterator[ext_proc.BodyResponse]:
    """Yield a body to be sent on, as a stream; `last`: nothing comes behind it."""
    starts = range(0, len(body), _PIECE_BYTES) or range(1)
    for start in starts:
        ends = last and start == starts[-1]
        piece = ext_proc.StreamedBodyResponse(body=body[start : start + _PIECE_BYTES], end_of_stream=ends)
        yield ext_proc.BodyResponse(
            response=ext_proc.CommonResponse(body_mutation=ext_proc.BodyMutation(streamed_response=piece))
        )


def refusal(error: RouterError) -> ext_proc.ProcessingResponse:
    """Return the answer that a client gets instead of a worker's."""
    answer = ext_proc.ImmediateResponse(
        headers=mutation(error_headers(error)), body=error.body(), details=error.code
    )
    answer.status.code = error.status
    return ext_proc.ProcessingResponse(immediate_response=answer)
