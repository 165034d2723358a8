"""The sender of spans: OTLP over HTTP, configured by the standard variables of OpenTelemetry. Imported only where traces are wanted, from the extra `otel`."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from .._version import __version__


class QueryFilter(SpanProcessor):
    """Removes queries of URLs, which may have a share key or a text."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if span.attributes and "url.query" in span.attributes:
            span.set_attribute("url.query", "")


def start() -> None:
    """Create the sender and make it that of this process. Spans are sent by a thread, every few seconds."""
    own = Resource({"service.name": "headscope", "service.version": __version__})
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(QueryFilter())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
