"""The JSON document of an effect, built from its job and its stored result."""

from __future__ import annotations

from typing import Any

from ...effects import EFFECTS
from ...errors import NotReady
from ...jobs import Job
from ...store import Stored
from ..schemas.effects import EffectDocument
from .analyses import PREFIX
from .single import common_fields, known_of

# Fields of a result that are null in effects stored before there were such fields.
LATER = dict.fromkeys(("shape", "completeness_error", "score", "writes"))


def to_document(id_: str, job: Job | None, stored: Stored | None, position: int | None = None) -> EffectDocument:
    """Return the document of an effect. At least one of `job` and `stored` is required."""
    known, fields = known_of(job, stored), common_fields(id_, job, stored, position)
    of = f"{PREFIX}/{known['analysis']}"
    maps = {"maps": f"{of}/effects/{id_}/maps"} if known.get("shapes") else {}
    return EffectDocument.model_validate(
        {
            **fields,
            "analysis": known["analysis"],
            "result": {**LATER, **fields["result"]} if fields["result"] else None,
            "links": {"self": f"{of}/effects/{id_}", "analysis": of, **maps},
        }
    )


def map_axes(stored: Stored) -> tuple[str, dict[str, Any]]:
    """Return the name of an effect's maps in its result, and their layers, heads and tokens as a document of an analysis has them. Raises NotReady."""
    result = {**LATER, **stored.document["result"]}
    if result["shape"] is None:
        names = [name for name, method in EFFECTS.items() if method.maps]
        raise NotReady(f"This effect has no maps. Ask for a method that has one for every head: {' or '.join(names)}.")
    same = result["key_tokens"] == result["tokens"]
    return result["method"]["name"], {**result, "key_tokens": None if same else result["key_tokens"]}
