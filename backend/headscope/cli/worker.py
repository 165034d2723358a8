"""headscope worker: a worker of a cluster."""

from __future__ import annotations

import os
import socket
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING

import click
import psutil

from .. import logs, stores
from ..core.lazy import LazyModule
from ..database import schema
from ..errors import HeadscopeError
from ..jobs import JobDatabase, Worker, announcements, metrics
from ..jobs.supervisor import STALE_SECONDS
from ..models.catalog import Catalog
from ..models.device import resolve
from ..server import doctor
from ..settings import Settings
from ..worker.process import PRELOAD, create_engine

if TYPE_CHECKING:
    from ..jobs import celery, cluster_worker, outbox
else:  # settings say what is missing where these cannot be imported
    celery, cluster_worker, outbox = (
        LazyModule(f"headscope.jobs.{name}") for name in ("celery", "cluster_worker", "outbox")
    )


@click.command()
@click.option("--device", help="cpu, cuda, cuda:1, or auto for the GPU if there is one.  [default: HEADSCOPE_DEVICE]")
@click.option(
    "--models",
    help="Names of models, separated by commas: run only jobs of these, and have these run here.  [default: all]",
)
@click.option("--name", help="Unique name that is kept across restarts.  [default: device, host and process id]")
@click.option("--check", is_flag=True, help="Only report whether a worker of this host is running: exit status 0 or 1.")
def worker(device: str | None, models: str | None, name: str | None, check: bool) -> None:
    """Run jobs of a cluster.

    Runs until it is stopped. Requires HEADSCOPE_DATABASE_URL and HEADSCOPE_REDIS_URL, and the servers' results: the same
    HEADSCOPE_HOME or HEADSCOPE_STORE_URL. Start one worker per GPU.
    """
    settings = Settings(device=device) if device else Settings()
    url = settings.redis_url
    if url is None:
        raise HeadscopeError(
            "A worker needs a cluster. Set HEADSCOPE_DATABASE_URL and HEADSCOPE_REDIS_URL as for its servers."
        )
    facts = stores.open_database(settings, patient=True)
    database = JobDatabase(facts)
    if check:
        _check(database)
        return
    logs.configure(settings.log_format, settings.log_level)
    if settings.metrics_address:
        metrics.serve(settings.metrics_address)
    stores.prepare(settings)
    doctor.refuse_evicting_broker(settings)
    chosen = settings.model_copy(update={"device": resolve(settings.device)})
    host = socket.gethostname()
    identity = Worker(
        name or f"{chosen.device}@{host}-{os.getpid()}",
        chosen.device,
        models=_digests(settings, models),
        pid=os.getpid(),
        host=host,
    )
    schema.prepare(facts)
    _wait_for_name(database, identity)
    facts.close()  # connections do not survive a fork
    import_module(PRELOAD)  # torch, once: a child that replaces another one is forked with it
    app = celery.application(url, job_seconds=settings.job_seconds, child_bytes=settings.worker_bytes)

    def make_process() -> cluster_worker.ClusterWorkerProcess:
        """Open everything in the child."""
        facts = stores.open_database(chosen, patient=True)
        own, results = JobDatabase(facts, announcements.announcer(url)), stores.results(chosen, facts)
        return cluster_worker.ClusterWorkerProcess(
            identity,
            own,
            lambda: create_engine(chosen, facts),
            outbox.Outbox(own, app, url),
            lambda: stores.discard_ended(results, own),
            job_seconds=settings.job_seconds,
            cancel_seconds=settings.cancel_seconds,
        )

    sys.exit(celery.serve(app, identity, database, make_process, prewarm=settings.prewarm))


def _digests(settings: Settings, models: str | None) -> frozenset[str]:
    """Return the digests under which jobs of these models are queued. Raises Unknown."""
    names = models.split(",") if models else []
    found = [Catalog(settings).locate(name.strip(), pointer=None) for name in names]
    return frozenset().union(*(located.accepted_digests() for located in found))


def _check(database: JobDatabase) -> None:
    here = [known for known in database.workers() if known.host == socket.gethostname()]
    if not any(_has_heartbeat(database, known) for known in here):
        raise HeadscopeError("No worker is running on this host. Read its log, and start it with: headscope worker")
    click.echo("A worker is running on this host.")


def _has_heartbeat(database: JobDatabase, known: Worker) -> bool:
    return database.now() - known.seen < STALE_SECONDS


def _wait_for_name(database: JobDatabase, identity: Worker) -> None:
    """Wait until no other worker has this name. Raises HeadscopeError if one keeps it."""
    deadline = time.monotonic() + STALE_SECONDS + 3
    while any(known.name == identity.name and _is_alive(database, known, identity) for known in database.workers()):
        if time.monotonic() > deadline:
            raise HeadscopeError("Another worker has this name. Stop it, or choose another name with --name.")
        time.sleep(0.2)


def _is_alive(database: JobDatabase, known: Worker, identity: Worker) -> bool:
    gone = known.host == identity.host and not psutil.pid_exists(known.pid)
    return not gone and _has_heartbeat(database, known)
