"""headscope worker: takes jobs of a cluster and runs their models."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from functools import cache

import click
import psutil

from .. import logs, stores
from ..errors import HeadscopeError
from ..jobs import JobDatabase, Worker, WorkerState
from ..server import doctor
from ..server.service import create_engine
from ..settings import Settings

# A worker not heard of for this long (s) is not there; one that stops says so within seconds.
SILENT_SECONDS = 15.0


@click.command()
@click.option("--device", help="cpu, cuda, cuda:1, or auto for the GPU if there is one.  [default: HEADSCOPE_DEVICE]")
@click.option(
    "--name", help="A name that no other worker has and a restart keeps.  [default: of device, host and process]"
)
@click.option("--check", is_flag=True, help="Only say whether a worker of this host takes jobs: exit status 0 or 1.")
def worker(device: str | None, name: str | None, check: bool) -> None:
    """Take jobs of a cluster and run their models.

    Goes on until it is told to stop. Needs HEADSCOPE_REDIS_URL, and the results where the servers have them: in the same
    HEADSCOPE_HOME, or at the same HEADSCOPE_STORE_URL. Start one per GPU.
    """
    settings = Settings(device=device) if device else Settings()
    url = settings.redis_url
    if url is None:
        raise HeadscopeError("A worker needs a cluster. Set HEADSCOPE_REDIS_URL to the Redis that its servers use.")
    database = stores.job_database(settings, patient=True)
    if check:
        _check(database)
        return
    from ..jobs import celery
    from ..jobs.worker_process import WorkerProcess

    logs.configure(settings.log_format, settings.log_level)
    stores.prepare(settings)
    doctor.refuse_evicting_broker(settings)
    chosen = settings.model_copy(update={"device": _device(settings.device)})
    host = socket.gethostname()
    me = Worker(name or f"{chosen.device}@{host}-{os.getpid()}", chosen.device, pid=os.getpid(), host=host)
    _be_the_only(database, me)
    results = cache(lambda: stores.results(chosen))  # opened in the child: a connection does not survive a fork
    app = celery.application(url, job_seconds=settings.job_seconds, child_bytes=settings.worker_bytes)
    worker_process = WorkerProcess(
        me,
        lambda: stores.job_database(settings, patient=True),
        lambda: create_engine(chosen),
        lambda: celery.count_messages(url, chosen.device),
        lambda database: stores.discard_ended(results(), database),
        job_seconds=settings.job_seconds,
        prewarm=settings.prewarm,
    )
    sys.exit(celery.serve(app, worker_process))


def _device(asked: str) -> str:
    """cpu or a GPU, in another process: this one must not touch the GPU, or its children could not."""
    if asked != "auto":
        return asked
    code = "import torch; print('cuda' if torch.cuda.is_available() else 'cpu')"
    return subprocess.check_output([sys.executable, "-c", code], text=True).strip()  # noqa: S603 - our own words


def _check(database: JobDatabase) -> None:
    here = [state for state in database.workers() if state.worker.host == socket.gethostname()]
    if not any(_heard(database, state) for state in here):
        raise HeadscopeError("No worker of this host takes jobs. Look at its log, and start it with: headscope worker")
    click.echo("A worker of this host takes jobs.")


def _heard(database: JobDatabase, state: WorkerState) -> bool:
    return database.now() - state.seen < SILENT_SECONDS


def _be_the_only(database: JobDatabase, me: Worker) -> None:
    """Wait until nobody has this name any more. Raises HeadscopeError if somebody goes on having it."""
    deadline = time.monotonic() + SILENT_SECONDS + 3
    while any(state.worker.name == me.name and _lives(database, state, me) for state in database.workers()):
        if time.monotonic() > deadline:
            raise HeadscopeError("Another worker has that name. Stop it, or give this one another name with --name.")
        time.sleep(0.2)


def _lives(database: JobDatabase, state: WorkerState, me: Worker) -> bool:
    gone = state.worker.host == me.host and not psutil.pid_exists(state.worker.pid)
    return not gone and _heard(database, state)
