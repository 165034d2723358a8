"""What runs jobs, as homes see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from .job import Job, Problem
from .progress import ProgressReporter

Problems = Mapping[str, Problem | None]


class Engine(Protocol):
    """Runs jobs in a process of its own, which it has for itself."""

    @property
    def warm(self) -> frozenset[str]:
        """Digests of the models in memory."""

    @property
    def most_tokens(self) -> int:
        """Most tokens of several inputs in one forward pass; 0 for one input at a time."""

    def prewarm(self, reporter: ProgressReporter) -> None:
        """Get ready for the first job."""

    def run(self, jobs: Sequence[Job], reporter: ProgressReporter) -> Problems:
        """Do jobs that share a forward pass; by id the problem as a document, or None where the result is stored. Raises for a fault of the engine only."""
