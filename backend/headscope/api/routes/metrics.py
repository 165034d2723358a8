"""The route of Prometheus metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from ..._version import __version__
from ...errors import HeadscopeError
from ...jobs import JobDatabase
from ...jobs.metrics import relay
from ...server.service import Service
from ..error_responses import media

router = APIRouter(tags=["health"])


def make_registry(service: Service) -> CollectorRegistry:
    """Return a registry with the metrics of the service and of its process. Middleware adds its own."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(relay())
    registry.register(_ServiceCollector(service))
    return registry


@router.get("/metrics", responses=media("text/plain"), response_class=Response)
def metrics(request: Request) -> Response:
    """Return metrics in the Prometheus text format."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


class _ServiceCollector(Collector):
    """A collector that reads the job database and the index of results at each scrape. Every server of a cluster returns the same values."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        yield _gauge("info", "Version of Headscope.", {(__version__,): 1}, "version")
        try:
            shared = [*_collect_jobs(self._service.database), *self._collect_queues(), *self._collect_results()]
        except HeadscopeError:  # the other metrics are still available
            shared = []
        yield _gauge("record_up", "Whether the job database can be read.", {(): int(bool(shared))})
        yield from shared
        cache = self._service.cache
        for name, number in (("cache_hits", cache.hits), ("cache_misses", cache.misses)):
            yield CounterMetricFamily(f"headscope_{name}", "Lookups of this process in the cache.", value=number)

    def _collect_queues(self) -> Iterator[Metric]:
        waiting = self._service.database.depths() if self._service.deployment == "cluster" else {}
        depths: dict[tuple[str, ...], float] = {(device,): number for device, number in waiting.items()}
        yield _gauge("queue_depth", "Tasks at the broker that have not started, by class of device.", depths, "device")

    def _collect_results(self) -> Iterator[Metric]:
        count, size = self._service.results.usage()
        yield _gauge("results", "Number of stored results.", {(): count})
        yield _gauge("result_bytes", "Size of stored results in bytes.", {(): size})


def _collect_jobs(database: JobDatabase) -> Iterator[Metric]:
    now, oldest = database.now(), database.oldest()
    yield _gauge(
        "jobs", "Jobs by status.", {(status,): number for status, number in database.statuses().items()}, "status"
    )
    waited = 0.0 if oldest is None else max(now - oldest, 0.0)
    yield _gauge("oldest_wait_seconds", "Waiting time of the oldest queued job.", {(): waited})
    devices: Counter[tuple[str, ...]] = Counter((worker.device,) for worker in database.workers())
    yield _gauge("workers", "Workers with a heartbeat in the last minute, by device.", devices, "device")


def _gauge(name: str, text: str, values: Mapping[tuple[str, ...], float], *labels: str) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"headscope_{name}", text, labels=labels)
    for label_values, number in values.items():
        gauge.add_metric(label_values, number)
    return gauge
