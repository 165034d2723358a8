"""What the JSON documents of effects and of head scores have in common: each has one result, which is stored as it is returned."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...jobs import Job
from ...store import Stored
from .analyses import to_problem, to_progress


def known_of(job: Job | None, stored: Stored | None) -> Mapping[str, Any]:
    """Return the stored document of such a job, or until there is one its payload. Both have the request."""
    return stored.document if stored else json.loads(job.payload) if job else {}


def common_fields(id_: str, job: Job | None, stored: Stored | None, position: int | None) -> dict[str, Any]:
    """Return the fields of the document. At least one of `job` and `stored` is required."""
    known = known_of(job, stored)
    return {
        "id": id_,
        "status": "done" if stored or job is None else job.status,
        "progress": to_progress(None if stored else job, position),
        "request": known["request"],
        "result": known.get("result"),
        "versions": known.get("versions"),
        "error": to_problem(job) if job and not stored else None,
    }
