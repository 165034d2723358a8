"""How worker processes are built: what a server or `headscope worker` starts, and what is created in the process that runs jobs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from .. import logs, stores
from ..database import Database
from ..jobs import Embedded, Engine, JobDatabase, Worker, WorkerProcess, tracing
from ..jobs.announcements import Announce
from ..jobs.embedded import Runs
from ..settings import Settings

# The module that is imported before worker processes are forked.
PRELOAD = "headscope.worker.preload"


def build_embedded(
    settings: Settings, database: JobDatabase, announce: Announce, discard_ended: Callable[[], None], runs: Runs
) -> Embedded:
    """Return the child process of an embedded server that runs its jobs, or its downloads, without a time limit."""
    downloads = runs == "downloads"
    limit = math.inf if downloads else settings.job_seconds
    return Embedded(
        database,
        partial(create_process, settings, limit),
        modules=[PRELOAD],
        prewarm=settings.prewarm and not downloads,
        downloads=downloads,
        announce=announce,
        job_seconds=limit,
        discard_ended=discard_ended,
    )


def create_process(settings: Settings, job_seconds: float, name: str, announce: Announce) -> WorkerProcess:
    """Create the worker process `name` of an embedded server, in that process."""
    facts = stores.open_database(settings, patient=True)
    engine = partial(create_engine, settings, facts)
    limits = {"job_seconds": job_seconds, "cancel_seconds": settings.cancel_seconds}
    return WorkerProcess(Worker(name), JobDatabase(facts, announce), engine, **limits)


def create_engine(settings: Settings, facts: Database) -> Engine:
    """Create the engine that runs jobs, in the process that runs them."""
    from .engine import AnalysisEngine  # imports torch and transformers, which the server's process never does

    logs.configure(settings.log_format, settings.log_level)  # not inherited from the server
    tracing.start()
    return AnalysisEngine(settings, facts)
