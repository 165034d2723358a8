"""The jobs of head scores: batteries that test every head of a model."""

from __future__ import annotations

import json
from typing import Any

from ..analysis.head_scores import compute
from ..analysis.head_scores_request import HeadScoresRequest
from ..analysis.request import versions
from ..jobs import Job, metrics
from ..store import Results
from .effect_jobs import LoadAccepted
from .study_jobs import ReportProgress


class HeadScoreJobs:
    """The jobs of head scores."""

    def __init__(self, results: Results, load: LoadAccepted) -> None:
        self._results, self._load = results, load

    def head_scores(self, job: Job, progress: ReportProgress) -> None:
        """Compute head scores and store them, unless they are already stored. Errors point to fields of their request only."""
        if self._results.exists(job.id):
            return
        payload = json.loads(job.payload)
        model = self._load(job, payload["model"], progress, "float32")
        found = compute(model, HeadScoresRequest.model_validate(payload["request"]), progress)
        progress(1.0, "writing", "", force=True)
        named = {"kind_of": job.kind, "versions": versions()}
        document: dict[str, Any] = {**named, **payload, "result": found.to_document()}
        with self._results.writer(job.id, (job.id, job.run)) as writer:
            metrics.add("written_bytes", writer.finish(document, {}))
