from __future__ import annotations

import logging
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from router.observe.sending import Sending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan

GOOD, BAD = SpanExportResult.SUCCESS, SpanExportResult.FAILURE


class Scripted(SpanExporter):
    """Answers as it is told."""

    result: SpanExportResult | None = BAD

    def export(self, _: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.result is None:
            raise RuntimeError
        return self.result


def test_lines_are_one_when_it_begins_to_fail_and_one_when_it_works_again_at_most_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    now, exporter = [100.0], Scripted()
    sending = Sending(exporter, lambda: now[0])
    for exporter.result in (BAD, None, BAD, GOOD, GOOD, BAD, GOOD):
        sending.export([])
    now[0] += 61
    for exporter.result in (BAD, BAD, GOOD):
        sending.export([])
    failed = "spans cannot be sent: the collector does not take them; 0 have been lost so far"
    assert caplog.messages == [failed, "spans are sent again; 0 have been lost so far"] * 2


def test_while_it_goes_on_failing_nothing_more_is_said_however_long_that_takes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    sending = Sending(Scripted(), lambda: now[0])
    for _ in range(5):
        sending.export([])
        now[0] += 61
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("result", [BAD, None, GOOD])
def test_it_knows_whether_the_last_try_failed(result: SpanExportResult | None) -> None:
    exporter = Scripted()
    exporter.result = result
    sending = Sending(exporter, lambda: 0.0)
    sending.export([])
    assert sending.failing is (result is not GOOD)


class Refuses(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(401, "Not with this key")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_of_a_collector_that_refuses_the_status_is_told_and_nothing_that_the_exporter_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with HTTPServer(("127.0.0.1", 0), Refuses) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        sending = Sending(
            OTLPSpanExporter(f"http://127.0.0.1:{server.server_port}/v1/traces?key=secret"), lambda: 0.0
        )
        for _ in range(3):
            sending.export([])
        server.shutdown()
    sending.shutdown()
    said = "spans cannot be sent: the collector does not take them: it answers 401; 0 have been lost so far"
    assert [line.getMessage() for line in caplog.records if line.levelno >= logging.ERROR] == []
    assert [line for line in caplog.messages if "spans" in line] == [said]
