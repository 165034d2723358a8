"""The Celery application of a cluster, and the process that `headscope worker` runs.

Each task carries the jobs of one task of the database; its id and its arguments name them, so that Celery's tools show what runs. What a task does is decided
by the database when it starts: messages that are lost, duplicated or redelivered do no harm.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import billiard
import psutil
from celery import Celery, Task, signals
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.worker.consumer import Consumer

from ..errors import DatabaseUnavailable
from . import metrics
from .cluster_worker import ClusterWorkerProcess
from .job import Worker
from .job_database import JobDatabase
from .outbox import TASK
from .sending import queues_of
from .worker_process import GRACE_SECONDS

logger = logging.getLogger("headscope.jobs")

# A child that is not ready after this long (s) is replaced; it loads the default model first.
START_SECONDS = 300.0
# How long after the hard time limit of a job a message is redelivered, in s.
VISIBLE_SECONDS = 60.0
# A stopping worker lets its job run for this long (s); then another worker restarts it. Docker allows 10 s.
STOP_SECONDS = 8.0


def application(url: str, *, job_seconds: float, child_bytes: int = 0) -> Celery:
    """Return the application. A child process that does not end a job after `job_seconds` is killed; one larger than `child_bytes` (0: no limit) is replaced."""
    app = Celery("headscope", broker=_kombu(url), set_as_current=False)
    hard = job_seconds + GRACE_SECONDS
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_time_limit=hard,
        worker_pool="prefork",
        worker_concurrency=1,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_max_memory_per_child=-(-child_bytes // 1024) or None,  # in KiB
        worker_proc_alive_timeout=START_SECONDS,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": hard + VISIBLE_SECONDS,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            "socket_connect_timeout": 2,
            "socket_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
    )
    return app


def node_name(worker: str) -> str:
    """Return Celery's name of a worker."""
    return f"headscope@{worker}"


def _kombu(url: str) -> str:
    """Return the URL in kombu's form, which differs for a Unix socket and its database. By default kombu does not verify certificates, so the URL asks for it."""
    if url.startswith("rediss://") and "ssl_cert_reqs" not in url:
        return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"
    if not url.startswith("unix://"):
        return url
    path, _, query = url.removeprefix("unix://").partition("?")
    return f"redis+socket://{path}?{query.replace('db=', 'virtual_host=')}"


def serve(
    app: Celery,
    worker: Worker,
    database: JobDatabase,
    make_process: Callable[[], ClusterWorkerProcess],
    *,
    prewarm: bool,
) -> int:
    """Run a worker until it is stopped; return the exit status. Jobs run in a child, which can be killed alone, by what `make_process` returns in it."""
    process: ClusterWorkerProcess | None = None  # in the child

    @app.task(name=TASK, bind=True)  # type: ignore[untyped-decorator]
    def run(task: Task, _: list[str]) -> None:
        if process is not None:
            process.work(task.request.id)

    def start_child(**_: Any) -> None:
        nonlocal process
        process = make_process()
        process.begin(prewarm=prewarm)

    def stop(**_: Any) -> None:
        threading.Thread(target=_stop_child, args=(worker.name, database), name="stop-child", daemon=True).start()

    signals.setup_logging.connect(_quieten)
    signals.worker_process_init.connect(start_child)
    signals.worker_shutting_down.connect(stop)
    # Warnings about running as root, which matters only if messages contain code, and about a default that will change.
    for category in (SecurityWarning, CPendingDeprecationWarning):
        warnings.filterwarnings("ignore", category=category)
    parent = app.Worker(
        hostname=node_name(worker.name),
        queues=queues_of(worker),
        consumer_cls=_Consumer,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
    )
    metrics.relay()  # of its children
    parent.start()
    with suppress(DatabaseUnavailable):
        database.release(worker.name)
    return int(parent.exitcode or 0)


def _quieten(**_: Any) -> None:
    """Keep the logging configuration; silence the logs about messages and the missing result backend."""
    for name in ("celery.worker.request", "celery.app.trace"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("celery.worker.control").setLevel(logging.ERROR)
    billiard.get_logger().propagate = True  # otherwise it bypasses our log


def _stop_child(name: str, database: JobDatabase) -> None:
    """Wait for the job of a stopping worker, for STOP_SECONDS at most, then kill its child."""
    deadline = time.monotonic() + STOP_SECONDS
    with suppress(DatabaseUnavailable):
        while database.held(name) and time.monotonic() < deadline:
            time.sleep(0.1)
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            child.kill()


class _Consumer(Consumer):  # type: ignore[misc]
    """A consumer that retries the broker at least every 3 s; Celery waits up to 30 s."""

    def ensure_connected(self, connection: Any) -> Any:
        connection.ensure_connection = partial(
            connection.ensure_connection, interval_start=1, interval_step=1, interval_max=3
        )
        return super().ensure_connected(connection)
