"""OpenTelemetry spans of requests: what the router has done, and when, nothing of what was in them.

    POST /v1/chat/completions     the request, SERVER; continues the client's trace
      plan                        read, and tokenised
      choose                      one for each choice
      chat MODEL                  one for each try at a worker, CLIENT; the worker continues it (traceparent)

Times are those of the request's story; spans are made when it ends, but for those that others continue. They
are sent in batches, as JSON, by a thread of the SDK's. (What sends protobuf instead installs files that
packages of Envoy's overwrite.) About 100 us a request that is sampled.
"""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from router import __version__
from router.observe.sending import Sending
from router.observe.story import Moment
from router.prompts.request import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from router.observe.story import Decision, Story, Try
    from router.proxy.headers import Field

_PARENT, _STATE = b"traceparent", b"tracestate"
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
# GenAI semantic conventions, gen_ai.operation.name.
_OPERATIONS = {
    Kind.COMPLETIONS: "text_completion",
    Kind.GENERATE: "text_completion",
    Kind.OTHER: "other",
}
_NANOSECONDS = 1e9
_NOTE = "spans"
_CLOSE_SECONDS, _LAST_TRY_SECONDS = 2.0, 0.2
_ERROR, _SERVER_ERROR = 400, 500


class Spans:
    """An observer. `endpoint` is where spans are posted to; None: OTEL_EXPORTER_OTLP_* say it."""

    def __init__(self, endpoint: str | None) -> None:
        self._sending = Sending(OTLPSpanExporter(endpoint), time.monotonic)
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._sending))
        self._tracer = self._provider.get_tracer("kv-router", __version__)

    @property
    def lost(self) -> int:
        """How many spans nobody has taken."""
        return self._sending.lost

    def close(self) -> None:
        """Send what there is; when nobody takes it for some seconds, or has taken the last, give up."""
        sending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(_LAST_TRY_SECONDS if self._sending.failing else _CLOSE_SECONDS)
        if sending.is_alive():
            self._sending.shutdown()  # it ends the wait for the next try
            sending.join(_CLOSE_SECONDS)

    def observe(self, moment: Moment, story: Story) -> None:
        """Make the spans of a request."""
        if moment is Moment.BEGAN:
            story.notes[_NOTE] = _Traced(self, story)
        elif moment is Moment.SENT:
            story.notes[_NOTE].sent(story)
        elif moment is Moment.OVER:
            story.notes[_NOTE].over(story.tries[-1], cut=bool(story.error))
        elif moment is Moment.ENDED:
            story.notes[_NOTE].ended(story)

    def start(
        self,
        name: str,
        parent: Span | SpanContext | None,
        at: int,
        attributes: Mapping[str, AttributeValue],
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        """Start a span at this time, in nanoseconds since the epoch."""
        if isinstance(parent, SpanContext):
            parent = NonRecordingSpan(parent)
        context = set_span_in_context(parent) if parent is not None else None
        return self._tracer.start_span(name, context, kind, dict(attributes), start_time=at)


class _Traced:
    """The spans of one request."""

    __slots__ = ("_offset", "_spans", "_try", "_whole")

    def __init__(self, spans: Spans, story: Story) -> None:
        self._spans = spans
        self._offset = time.time_ns() - int(time.perf_counter() * _NANOSECONDS)
        path, headers = story.kind.value, story.exchange.headers
        attributes = {"http.request.method": "POST", "http.route": path, "kv_router.request_id": _id(story)}
        self._whole = spans.start(
            f"POST {path}", _parent(headers), self._at(story.began), attributes, SpanKind.SERVER
        )
        self._try: Span | None = None
        _pass_on(headers, self._whole)

    def _at(self, moment: float) -> int:
        """Return a time of `perf_counter` in nanoseconds since the epoch."""
        return self._offset + int(moment * _NANOSECONDS)

    def sent(self, story: Story) -> None:
        """A try begins, which the worker continues."""
        last, model = story.tries[-1], story.plan.route.model if story.plan is not None else ""
        operation = _OPERATIONS.get(story.kind, "chat")
        self._try = self._spans.start(
            f"{operation} {model}".strip(),
            self._whole,
            self._at(last.sent),
            {"gen_ai.operation.name": operation, "gen_ai.request.model": model, **_place(story, last)},
            SpanKind.CLIENT,
        )
        _pass_on(story.exchange.headers, self._try)

    def over(self, last: Try, *, cut: bool) -> None:
        """The try is over."""
        span = self._try
        if span is None or not span.is_recording():
            return
        if last.prompt_tokens is not None:
            span.set_attribute("gen_ai.usage.input_tokens", last.prompt_tokens)
        if last.cached_tokens is not None:
            span.set_attribute("gen_ai.usage.cache_read.input_tokens", last.cached_tokens)
        if last.started:
            span.set_attribute("gen_ai.response.time_to_first_chunk", last.started - last.sent)
        if cut or not last.answered:
            span.set_status(Status(StatusCode.ERROR))
        span.end(self._at(last.over))

    def ended(self, story: Story) -> None:
        """The request is over."""
        whole = self._whole
        if whole.is_recording():
            if story.plan is not None:
                self._planned(story)
            for decision in story.decisions:
                self._chosen(decision)
            whole.set_attribute("http.response.status_code", story.status)
            if story.error:
                whole.set_attribute("error.type", story.error)
            if story.status >= _SERVER_ERROR or (story.error and story.status < _ERROR):
                whole.set_status(Status(StatusCode.ERROR))
        whole.end(self._at(story.ended))

    def _planned(self, story: Story) -> None:
        plan = story.plan
        assert plan is not None  # noqa: S101 - seen by the caller
        said: dict[str, AttributeValue] = {
            "kv_router.model": plan.route.model,
            "kv_router.prompt_tokens": plan.prompt.count,
            "kv_router.exact": plan.exact,
        }
        span = self._spans.start("plan", self._whole, self._at(story.began), said)
        span.end(self._at(story.planned))

    def _chosen(self, decision: Decision) -> None:
        chosen = decision.chosen
        said: dict[str, AttributeValue] = {
            "kv_router.policy": decision.policy.name,
            "kv_router.candidates": len(decision.facts.ranks),
            "kv_router.worker": chosen.rank.worker,
            "kv_router.rank": chosen.rank.rank,
            "kv_router.overlap_tokens": chosen.overlap_tokens,
            "kv_router.uncached_tokens": chosen.uncached_tokens,
        }
        span = self._spans.start("choose", self._whole, self._at(decision.began), said)
        span.end(self._at(decision.made))


def _resource() -> Resource:
    """Return who we are, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say something else."""
    said = Resource.create()
    ours = {"service.version": __version__}
    if str(said.attributes.get("service.name", "")).startswith("unknown_service"):
        ours["service.name"] = "kv-router"
    return said.merge(Resource(ours))


def _place(story: Story, last: Try) -> dict[str, AttributeValue]:
    """Say where a try goes: of a pair, whom the client hears."""
    rank = last.first.rank if last.decode is None else last.decode.rank
    where = urlsplit(rank.worker)
    said: dict[str, AttributeValue] = {
        "server.address": where.hostname or "",
        "server.port": where.port or (443 if where.scheme == "https" else 80),
        "kv_router.worker": rank.worker,
        "kv_router.rank": rank.rank,
        "kv_router.overlap_tokens": last.first.overlap_tokens,
    }
    if story.plan is not None:
        said["gen_ai.provider.name"] = story.plan.route.engine
    if last.decode is not None:
        said["kv_router.prefill_worker"] = last.first.rank.worker
        said["kv_router.prefill_rank"] = last.first.rank.rank
    return said


def _id(story: Story) -> str:
    return story.exchange.id[:128].decode("latin-1")


def _parent(headers: Iterable[Field]) -> SpanContext | None:
    """Return what the client's trace is at, by its W3C trace context."""
    given = dict(headers)
    found = _TRACEPARENT.fullmatch(given.get(_PARENT, b""))
    if found is None:
        return None
    trace, span, flags = (int(part, 16) for part in found.group(1, 2, 3))
    state = TraceState.from_header([given.get(_STATE, b"").decode("latin-1")])
    context = SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags), trace_state=state)
    return context if context.is_valid else None


def _pass_on(headers: list[Field], span: Span) -> None:
    """Let whoever gets these headers continue a span; the client's tracestate stays beside it."""
    context = span.get_span_context()
    value = b"00-%032x-%016x-%02x" % (context.trace_id, context.span_id, context.trace_flags)
    headers[:] = [field for field in headers if field[0] != _PARENT]
    headers.append((_PARENT, value))
