"""The interface of what runs jobs, in both deployments."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from ..errors import HeadscopeError
from .job import Job, Problem
from .progress import ProgressReporter

logger = logging.getLogger("headscope.jobs")

Problems = Mapping[str, Problem | None]


class Engine(Protocol):
    """Runs jobs in a process of its own."""

    @property
    def warm(self) -> frozenset[str]:
        """Digests of the models in memory."""

    @property
    def most_tokens(self) -> int:
        """Most tokens of several inputs in one forward pass; 0 for one input at a time."""

    def prewarm(self) -> None:
        """Load the default model before the first job."""

    def run(self, jobs: Sequence[Job], reporter: ProgressReporter) -> Problems:
        """Run jobs that share a forward pass. Return by id the problem as a document, or None if the result is stored. An exception is an error of the engine itself."""


def run_jobs(
    engine: Engine, jobs: Sequence[Job], reporter: ProgressReporter, interrupts: tuple[type[Exception], ...] = ()
) -> Problems:
    """Run jobs in either deployment. An error of the engine itself is the problem of all of them; `interrupts` are raised."""
    try:
        return engine.run(jobs, reporter)
    except interrupts:
        raise
    except Exception:
        logger.exception("job %s", ", ".join(job.id for job in jobs))
        failed = HeadscopeError("The worker failed on this job; its log says why.").problem()
        return dict.fromkeys((job.id for job in jobs), failed)
