"""The JSON document of head scores, built from their job and their stored result."""

from __future__ import annotations

from ...jobs import Job
from ...store import Stored
from ..schemas.head_scores import HeadScoresDocument
from .single import common_fields, known_of

MODELS = "/api/v1/models"


def to_document(id_: str, job: Job | None, stored: Stored | None, position: int | None = None) -> HeadScoresDocument:
    """Return the document of head scores. At least one of `job` and `stored` is required."""
    model = known_of(job, stored)["model"]
    of = f"{MODELS}/{model}"
    return HeadScoresDocument.model_validate(
        {
            **common_fields(id_, job, stored, position),
            "model": model,
            "links": {"self": f"{of}/head-scores/{id_}", "model": of},
        }
    )
