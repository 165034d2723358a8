"""The route of Prometheus metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from ..._version import __version__
from ...errors import HeadscopeError
from ...jobs import BUCKETS, Histogram, JobDatabase
from ...server.service import Service
from ..error_responses import media

router = APIRouter(tags=["health"])

# Read from the job database, so every server that shares it reports the same values.
COUNTERS = {
    "forward_passes": "Forward passes of models.",
    "model_loads": "Models loaded into memory.",
    "worker_losses": "Worker processes that died on a job.",
    "corrupt_results": "Corrupt results that were computed again.",
    "written_bytes": "Bytes of results written.",
    "study_inputs": "Inputs analysed for studies.",
}
HISTOGRAMS = {
    "wait_seconds": "Time from submission to the start of the last run.",
    "load_seconds": "Time to load the model; almost zero if it was loaded.",
    "run_seconds": "Time from the start of a run to its stored result.",
}
LABELS = ("model", "lens")


def make_registry(service: Service) -> CollectorRegistry:
    """Return a registry with the metrics of the service and of its process. Middleware adds its own."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # would double the number of series
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_ServiceCollector(service))
    return registry


@router.get("/metrics", responses=media("text/plain"), response_class=Response)
def metrics(request: Request) -> Response:
    """Return metrics in the Prometheus text format."""
    return Response(generate_latest(request.app.state.registry), media_type="text/plain; version=0.0.4; charset=utf-8")


class _ServiceCollector(Collector):
    """A collector that reads the job database and the index of results at each scrape, so that counts survive restarts."""

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
        depths: dict[tuple[str, ...], float] = {
            (device,): number for device, number in self._service.jobs.depths().items()
        }
        yield _gauge("queue_depth", "Queued messages, by class of device.", depths, "device")

    def _collect_results(self) -> Iterator[Metric]:
        count, size = self._service.results.usage()
        yield _gauge("results", "Number of stored results.", {(): count})
        yield _gauge("result_bytes", "Size of stored results in bytes.", {(): size})


def _collect_jobs(database: JobDatabase) -> Iterator[Metric]:
    now, oldest, counters, histograms = database.now(), database.oldest(), database.counters(), database.histograms()
    for name, text in COUNTERS.items():
        yield CounterMetricFamily(f"headscope_{name}", text, value=counters.get(name, 0))
    yield _gauge(
        "jobs", "Jobs by status.", {(status,): number for status, number in database.statuses().items()}, "status"
    )
    waited = 0.0 if oldest is None else max(now - oldest, 0.0)
    yield _gauge("oldest_wait_seconds", "Waiting time of the oldest queued job.", {(): waited})
    devices: Counter[tuple[str, ...]] = Counter((state.worker.device,) for state in database.workers())
    yield _gauge("workers", "Workers with a heartbeat in the last minute, by device.", devices, "device")
    for name, text in HISTOGRAMS.items():
        yield _histogram(name, text, [histogram for histogram in histograms if histogram.name == name])


def _gauge(name: str, text: str, values: Mapping[tuple[str, ...], float], *labels: str) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"headscope_{name}", text, labels=labels)
    for label_values, number in values.items():
        gauge.add_metric(label_values, number)
    return gauge


def _histogram(name: str, text: str, histograms: list[Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"headscope_{name}", text, labels=LABELS)
    for histogram in histograms:
        cumulative = accumulate(histogram.counts)
        buckets = [(str(bound), float(count)) for bound, count in zip((*BUCKETS, "+Inf"), cumulative, strict=True)]
        family.add_metric([histogram.labels.get(label, "") for label in LABELS], buckets, histogram.total)
    return family
