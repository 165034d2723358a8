"""Prometheus metrics of jobs.

A process that runs jobs sends what it counts to its parent, which is scraped: killing it resets no counter, and while it hangs its parent still answers.
Counters start at zero with the parent.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ..errors import InvalidSetting

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
# Upper bounds in seconds, from a model in memory to one that hangs.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)


disable_created_metrics()  # type: ignore[no-untyped-call]  # would double the number of series
_registry = CollectorRegistry()
_metrics: dict[str, Counter | Histogram] = {
    **{name: Counter(f"headscope_{name}", text, registry=_registry) for name, text in COUNTERS.items()},
    **{
        name: Histogram(f"headscope_{name}", text, LABELS, buckets=BUCKETS, registry=_registry)
        for name, text in HISTOGRAMS.items()
    },
}
_parent: Connection | None = None  # of a child process


def send_to(parent: Connection) -> None:
    """Make this process a child: what it counts goes to the `sending` end of its parent's relay."""
    global _parent
    _parent = parent


def add(name: str, value: float = 1, **labels: str) -> None:
    """Add to one of COUNTERS, or seconds to one of HISTOGRAMS, under values for LABELS. The caller must bound the number of these."""
    metric = _metrics[name]
    if _parent is not None:
        with suppress(OSError):  # full or closed: the count is lost, but no job waits
            _parent.send_bytes(json.dumps((name, value, labels)).encode())
    elif isinstance(metric, Counter):
        metric.inc(value)
    else:
        metric.labels(**labels).observe(value)


class Relay(Collector):
    """The metrics of this process, and a pipe with `sending` as the end for its children. Messages are so short that each is written whole or not at all."""

    def __init__(self) -> None:
        self._receiving, self.sending = multiprocessing.Pipe(duplex=False)
        os.set_blocking(self.sending.fileno(), False)
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="metrics", daemon=True).start()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, with everything that children have sent by now."""
        self._receive()
        yield from _registry.collect()

    def _run(self) -> None:
        while self._receiving.poll(None):  # otherwise the pipe would be full between two scrapes
            self._receive()

    def _receive(self) -> None:
        with self._lock:
            while self._receiving.poll():
                name, value, labels = json.loads(self._receiving.recv_bytes())
                add(name, value, **labels)


@cache
def relay() -> Relay:
    """Return the relay of this process. Create it before children are forked."""
    return Relay()


def serve(address: str) -> None:
    """Serve the metrics of this process on an address such as 127.0.0.1:9101. Raises InvalidSetting if that is impossible."""
    host, _, port = address.rpartition(":")
    registry = CollectorRegistry()
    registry.register(relay())
    try:
        server, _ = start_http_server(int(port), host.strip("[]"), registry)
    except (OSError, OverflowError):
        raise InvalidSetting(
            f"Metrics cannot be served on {address}: the port is in use, or this machine does not have that address. "
            "Give each worker its own HEADSCOPE_METRICS_ADDRESS, or unset it."
        ) from None
    os.register_at_fork(after_in_child=server.socket.close)  # a child that outlives this process must not hold the port
