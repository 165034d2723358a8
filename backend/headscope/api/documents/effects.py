"""The JSON document of an effect, built from its job and its stored result."""

from __future__ import annotations

import json
from typing import Any

from ...effects import EFFECTS
from ...errors import NotReady
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
            "links": {
                "self": f"{of}/effects/{id_}",
                "analysis": of,
                **({"maps": f"{of}/effects/{id_}/maps"} if known.get("shapes") else {}),
            },
        }
    )


def map_axes(stored: Stored) -> tuple[str, dict[str, Any]]:
    """Return the name of an effect's maps in its result, and their layers, heads and tokens as a document of an analysis has them. Raises NotReady."""
    result = stored.document["result"]
    if result["shape"] is None:
        names = [name for name, method in EFFECTS.items() if method.maps]
        raise NotReady(f"This effect has no maps. Ask for a method that has one for every head: {' or '.join(names)}.")
    same = result["key_tokens"] == result["tokens"]
    return result["method"]["name"], {**result, "key_tokens": None if same else result["key_tokens"]}
