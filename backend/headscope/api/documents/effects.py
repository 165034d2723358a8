"""The JSON document of an effect, built from its job and its stored result."""

from __future__ import annotations

import json

from ...jobs import Job
from ...store import Stored
from ..schemas.effects import EffectDocument
from .analyses import PREFIX, to_problem, to_progress


def to_document(id_: str, job: Job | None, stored: Stored | None, position: int | None = None) -> EffectDocument:
    """Return the document of an effect. At least one of `job` and `stored` is required."""
    known = stored.document if stored else json.loads(job.payload) if job else {}
    of = f"{PREFIX}/{known['analysis']}"
    return EffectDocument.model_validate(
        {
            "id": id_,
            "analysis": known["analysis"],
            "status": "done" if stored or job is None else job.status,
            "progress": to_progress(None if stored else job, position),
            "request": known["request"],
            "result": known.get("result"),
            "error": to_problem(job) if job and not stored else None,
            "links": {"self": f"{of}/effects/{id_}", "analysis": of},
        }
    )
