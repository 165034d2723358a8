"""Head scores on a server: a job for each model and request."""

from __future__ import annotations

from ..analysis.head_scores_request import HeadScoresRequest, check_causal
from ..models.catalog import Catalog
from .job_queue import JobQueue


class HeadScoring:
    """Admission of head scores. Methods block; the API calls them in threads."""

    def __init__(self, catalog: Catalog, jobs: JobQueue) -> None:
        self._catalog, self._jobs = catalog, jobs

    def submit(self, model: str, request: HeadScoresRequest, owner: str | None = None) -> tuple[str, bool]:
        """Check and queue the scores of a model for `owner`, and return their id and whether they were stored.

        Raises Unknown, Unsupported, ModelError or QueueFull before anything is queued.
        """
        located = self._catalog.locate(model, pointer=None)
        facts = self._catalog.check(located)
        if facts is not None:
            check_causal(facts)
        digest = located.digest()
        payload = {"model": model, "request": request.model_dump()}
        return self._jobs.submit("head-scores", request.key(model, digest), payload, digest, owner)

    def model_of(self, id_: str) -> str | None:
        """Return the name of the model that scores are about; None for any other id."""
        return self._jobs.find_field(id_, "head-scores", "model")
