"""Route: what the server has done and has to do, for Prometheus."""

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

# Of the record, and so of all processes that share it: each server says the same.
COUNTERS = {
    "forward_passes": "Forward passes of models.",
    "model_loads": "Models read into memory.",
    "worker_losses": "Worker processes that died on a job.",
    "corrupt_results": "Stored results found damaged and computed again.",
    "written_bytes": "Bytes of results written.",
    "study_inputs": "Inputs that went through models for studies.",
}
HISTOGRAMS = {
    "wait_seconds": "Time from acceptance to the start of the run that ended the analysis.",
    "load_seconds": "Time to find the model, or to load it.",
    "run_seconds": "Time from the start of a run to its stored result.",
}
LABELS = ("model", "lens")


def registry(service: Service) -> CollectorRegistry:
    """The metrics of one server: those of its service and of its process; others add their own."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # half of all series otherwise, and of no use to anybody here
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    made.register(_Metrics(service))
    return made


@router.get("/metrics", responses=media("text/plain"), response_class=Response)
def metrics(request: Request) -> Response:
    """Prometheus text format."""
    return Response(generate_latest(request.app.state.registry), media_type="text/plain; version=0.0.4; charset=utf-8")


class _Metrics(Collector):
    """Reads the record and the index at each scrape, so that counts outlive processes."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        yield _gauge("info", "The version that runs.", {(__version__,): 1}, "version")
        try:
            found = [*_of_record(self._service.database), *self._of_queues(), *self._of_results()]
        except HeadscopeError:  # the rest is worth reading even now
            found = []
        yield _gauge("record_up", "Whether the record of jobs can be read.", {(): int(bool(found))})
        yield from found
        hot = self._service.cache
        for name, number in (("cache_hits", hot.hits), ("cache_misses", hot.misses)):
            yield CounterMetricFamily(f"headscope_{name}", "Looks of this process into the hot cache.", value=number)

    def _of_queues(self) -> Iterator[Metric]:
        depths: dict[tuple[str, ...], float] = {
            (device,): number for device, number in self._service.jobs.depths().items()
        }
        yield _gauge("queue_depth", "Messages that wait for a worker, by class of device.", depths, "device")

    def _of_results(self) -> Iterator[Metric]:
        count, size = self._service.results.usage()
        yield _gauge("results", "Stored results.", {(): count})
        yield _gauge("result_bytes", "Bytes of stored results.", {(): size})


def _of_record(database: JobDatabase) -> Iterator[Metric]:
    now, oldest, counted, observed = database.now(), database.oldest(), database.counters(), database.histograms()
    for name, text in COUNTERS.items():
        yield CounterMetricFamily(f"headscope_{name}", text, value=counted.get(name, 0))
    yield _gauge(
        "jobs", "Jobs by status.", {(status,): number for status, number in database.statuses().items()}, "status"
    )
    waited = 0.0 if oldest is None else max(now - oldest, 0.0)
    yield _gauge("oldest_wait_seconds", "How long the job that waits longest has waited.", {(): waited})
    devices: Counter[tuple[str, ...]] = Counter((state.worker.device,) for state in database.workers())
    yield _gauge("workers", "Workers heard of in the last minute, by device.", devices, "device")
    for name, text in HISTOGRAMS.items():
        yield _histogram(name, text, [one for one in observed if one.name == name])


def _gauge(name: str, text: str, values: Mapping[tuple[str, ...], float], *labels: str) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"headscope_{name}", text, labels=labels)
    for values_of_labels, number in values.items():
        gauge.add_metric(values_of_labels, number)
    return gauge


def _histogram(name: str, text: str, observed: list[Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"headscope_{name}", text, labels=LABELS)
    for one in observed:
        below = accumulate(one.counts)
        buckets = [(str(bound), float(count)) for bound, count in zip((*BUCKETS, "+Inf"), below, strict=True)]
        family.add_metric([one.labels.get(label, "") for label in LABELS], buckets, one.total)
    return family
