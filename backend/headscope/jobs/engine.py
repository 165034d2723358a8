"""The interface of what runs jobs, in both deployments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from .job import Job, Problem
from .progress import ProgressReporter

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
