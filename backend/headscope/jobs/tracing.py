"""Traces of OpenTelemetry, from a request to its jobs in a worker. Off unless the standard variables name a collector.

Spans of requests are FastAPI's own. A worker claims jobs from the database, whatever message of the broker has woken it, so the context of a request is kept
with its jobs. Neither texts nor tokens become attributes, only ids, counts and names of kinds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..core.lazy import LazyModule
from ..settings import wants_traces
from .job import Job, Problem

logger = logging.getLogger("headscope.jobs")

# The interface of OpenTelemetry, which FastAPI brings; what sends spans is optional.
otel = LazyModule("opentelemetry.trace")
trace_context = LazyModule("opentelemetry.trace.propagation.tracecontext")
trace_export = LazyModule("headscope.jobs.trace_export")

MISSING = "traces are not sent: install headscope[otel], which speaks OTLP over HTTP, or unset the OTEL_ variables"
Problems = Mapping[str, Problem | None]

_on = False


def start() -> bool:
    """Send the spans of this process to the collector that the environment names, if it names one, and return whether it does. Repeated calls change nothing."""
    global _on
    if not _on and wants_traces():
        try:
            trace_export.start()
            _on = True
        except ModuleNotFoundError:
            logger.warning(MISSING)
    return _on


def current() -> str:
    """Return the current span in the form of the header `traceparent` (https://www.w3.org/TR/trace-context/); empty if there is none."""
    carrier = dict[str, str]()
    if _on:
        trace_context.TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


@contextmanager
def running(jobs: Sequence[Job], worker: str, problems: Problems) -> Iterator[None]:
    """Trace a run of jobs: for each of them its time in the queue, and its run, as children of the request that asked for it.

    By the end `problems` has those of the jobs. The span of the first job is the current one, so that the chunks of a study belong to it.
    """
    if not (_on and jobs):
        yield
        return
    spans = {job.id: _begin(job, {"headscope.worker": worker, "headscope.pass.jobs": len(jobs)}) for job in jobs}
    try:
        with otel.use_span(spans[jobs[0].id], record_exception=False, set_status_on_exception=False):
            yield
    finally:
        for id_, span in spans.items():
            if problem := problems.get(id_):
                span.set_attribute("error.type", problem["code"])
                span.set_status(otel.StatusCode.ERROR)
            span.end()


def _begin(job: Job, more: Mapping[str, str | int]) -> Any:
    """Return the span of a run that begins now, after another one for the time in the queue."""
    tracer, kinds = otel.get_tracer("headscope"), otel.SpanKind
    parent = trace_context.TraceContextTextMapPropagator().extract({"traceparent": job.trace})
    about = _attributes(job)
    if job.trace and job.started is not None:
        created, started = (int(seconds * 1e9) for seconds in (job.created, job.started))
        tracer.start_span(f"queue {job.kind}", parent, kinds.INTERNAL, about, start_time=created).end(started)
    return tracer.start_span(f"run {job.kind}", parent, kinds.CONSUMER, {**about, **more})


def _attributes(job: Job) -> dict[str, str | int]:
    return {
        "headscope.job.id": job.id,
        "headscope.job.kind": job.kind,
        "headscope.job.attempt": job.attempts,
        "headscope.job.tokens": job.tokens or 0,
        "headscope.request_id": job.request_id,
        "messaging.message.id": job.task,
    }
