"""Routes: is the server alive, is it ready, and what has it done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import JSONResponse, Response

from .._version import __version__
from ..errors import HeadscopeError
from ..runtime import Service
from .deps import ServiceDep
from .schemas import Health

router = APIRouter(tags=["health"])

COUNTERS = {
    "forward_passes": "Forward passes of models.",
    "model_loads": "Models read into memory.",
    "worker_losses": "Worker processes that died on a job.",
    "corrupt_results": "Stored results found damaged and computed again.",
}


@router.get("/healthz")
async def healthz() -> Response:
    """Alive."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz", response_model=Health)
def readyz(service: ServiceDep) -> Response:
    """Taking work, or 503."""
    try:
        count, size = service.results.usage()
        queued, workers = service.record.waiting(), service.workers()
        status: Literal["ok", "degraded"] = "ok" if service.jobs.alive() else "degraded"
    except HeadscopeError:
        status, queued, workers, count, size = "degraded", None, None, None, None
    health = Health(
        status=status, version=__version__, queued=queued, workers=workers, results=count, result_bytes=size
    )
    return JSONResponse(health.model_dump(), 200 if status == "ok" else 503)


@router.get("/metrics", response_class=Response)
def metrics(service: ServiceDep) -> Response:
    """Prometheus text format."""
    registry = CollectorRegistry()
    registry.register(_Metrics(service))
    return Response(generate_latest(registry), media_type="text/plain; version=0.0.4; charset=utf-8")


class _Metrics(Collector):
    """Reads the record and the index at each scrape, so that counts outlive processes."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        counted = self._service.record.counters()
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"headscope_{name}", text, value=counted.get(name, 0))
        jobs = GaugeMetricFamily("headscope_jobs", "Jobs by status.", labels=["status"])
        for status, number in self._service.record.statuses().items():
            jobs.add_metric([status], number)
        yield jobs
        count, size = self._service.results.usage()
        yield GaugeMetricFamily("headscope_results", "Stored results.", value=count)
        yield GaugeMetricFamily("headscope_result_bytes", "Bytes of stored results.", value=size)
