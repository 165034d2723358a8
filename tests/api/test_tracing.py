"""Traces of OpenTelemetry: from a request through database, broker and worker to the collector, by the real exporter."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys

import pytest

from headscope.core.lazy import LazyModule
from headscope.jobs import tracing
from headscope.settings import wants_traces
from tests.support.cluster import Cluster
from tests.support.collector import Collector
from tests.support.server import eventually


def test_one_trace_through_a_cluster(cluster: Cluster, collector: Collector) -> None:
    """A client's trace has the request, the time in the queue and the run, and no text."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    text = f"A text that is nowhere else: {trace}."
    header = {"traceparent": f"00-{trace}-{span}-01", "Prefer": "wait=30"}
    done = cluster.post({"model": "bert", "text": text}, path="/analyses?unused=secret", headers=header).json()
    assert done["status"] == "done"
    names = {"POST /api/v1/analyses", "queue analysis", "run analysis"}
    eventually(lambda: collector.of(trace).keys() >= names, "the spans of the request and its job")
    found = collector.of(trace)
    request, queue, run = (found[name] for name in sorted(names))
    assert request.parent == span
    assert queue.parent == run.parent == request.id
    assert {one.service for one in found.values()} == {"headscope"}
    assert queue.began <= queue.ended <= run.ended
    assert run.attributes["headscope.job.id"] == done["id"]
    assert run.attributes["headscope.worker"] in {worker.name for worker in cluster.workers}
    assert run.attributes["messaging.message.id"].startswith(done["id"])
    assert not run.failed
    assert "secret" not in str(found)
    assert text not in str(found)


def test_failures_in_a_cluster(cluster: Cluster, collector: Collector) -> None:
    """A request begins a trace of its own; a job that fails says by which code. Requests that are made again and again are not traced."""
    before = len(collector.spans)
    cluster.client.get("/readyz")
    failed = cluster.ended(cluster.submit(model="bert", token_ids=[1, 999_998]))

    def run() -> object:
        named = (span for span in collector.spans if span.attributes.get("headscope.job.id") == failed["id"])
        return next((span for span in named if span.name == "run analysis"), None)

    span = eventually(run, "the span of the job")
    assert span.failed
    assert span.attributes["error.type"] == failed["error"]["code"]
    assert span.parent == collector.of(span.trace)["POST /api/v1/analyses"].id
    assert not any("readyz" in span.name for span in collector.spans[before:])


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"ENDPOINT": "http://collector:4318"}, True),
        ({"TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"ENDPOINT": ""}, False),
    ],
)
def test_off_unless_a_collector_is_named(
    variables: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    assert wants_traces() is wanted
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert not wants_traces()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    assert wants_traces()
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not wants_traces()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The server runs, and says once why there are no traces."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.setattr(tracing, "trace_export", LazyModule("headscope.jobs.trace_export"))
    monkeypatch.delitem(sys.modules, "headscope.jobs.trace_export", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert not tracing.start()
    assert "install headscope[otel]" in caplog.text
    assert tracing.current() == ""


def test_nothing_is_imported_without_a_collector() -> None:
    """A server that is not asked for traces loads nothing that makes or sends them; redis loads other parts of the extra, which count."""
    code = (
        "import sys; from headscope.api.app import create; from headscope.settings import Settings; create(Settings());"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk.trace', 'opentelemetry.exporter', 'headscope.jobs.trace_export'))])"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    shown = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
