"""The JSON documents of an analysis, built from its job and its stored result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...analysis.request import AnalysisRequest
from ...core.arrays import to_lists
from ...core.tokens import TOKENS
from ...core.words import word_groups
from ...jobs import Job
from ...lenses import LENSES
from ...measures import MEASURES
from ...measures.received import Window, window_of
from ...store.export import Source
from ..schemas.analyses import AnalysisDocument, AnalysisItem, Event, MapSchema, Progress, Summary
from ..schemas.common import MechanismSchema, Problem

PREFIX = "/api/v1/analyses"
REQUESTED = ("model", "mechanism", "text", "text_pair", "messages", "image", "generate", "max_tokens", "mask")
# Fields that are copied from a result, with their values before there is one.
NO_RESULT: dict[str, Any] = {
    "full_text": None,
    "target_text": None,
    "generated": 0,
    "grid": None,
    "head_width": 0,
    "causal": False,
    "tokens": [],
    "key_tokens": None,
    "warnings": [],
    "timing_ms": {},
    "versions": None,
}


def to_progress(job: Job | None, position: int | None = None) -> Progress:
    """Return the progress of a job; without a job, its stored result is complete."""
    if job is None or job.status == "done":
        return Progress(fraction=1.0, stage="done", detail="", position=None)
    return Progress.model_validate(
        {"fraction": job.fraction, "stage": job.stage, "detail": job.detail, "position": position}
    )


def to_event(job: Job, position: int | None) -> Event:
    """Return the data of a server-sent event."""
    return Event(
        id=job.id, status=job.status, progress=to_progress(job, position), attempts=job.attempts, error=to_problem(job)
    )


def to_item(job: Job) -> AnalysisItem:
    """Return a job as an item of a list."""
    request = json.loads(job.payload)
    return AnalysisItem(
        id=job.id,
        status=job.status,
        model=request["model"],
        mechanism=MechanismSchema.model_validate(request["mechanism"]),
        image=request["image"],
        text=request["text"],
        text_pair=request["text_pair"],
        messages=request.get("messages"),
        generate=request["generate"],
        mask=request["mask"],
        created=job.created,
    )


def to_document(id_: str, job: Job | None, stored: Source | None, position: int | None = None) -> AnalysisDocument:
    """Return the document of an analysis. At least one of `job` and `stored` is required."""
    if stored is not None:
        request = stored.document["request"]
    else:
        request = AnalysisRequest.model_validate_json(job.payload).record if job else {}
    document = stored.document if stored else {}
    return AnalysisDocument.model_validate(
        {
            "id": id_,
            "status": "done" if stored else job.status if job else "done",
            "progress": to_progress(None if stored else job, position),
            "attempts": job.attempts if job else 1,
            "batch": job.batch if job else None,
            **{field: request.get(field) for field in REQUESTED},
            **{field: document.get(field, default) for field, default in NO_RESULT.items()},
            "lenses": [choice["name"] for choice in request["lenses"]],
            "measures": [choice["name"] for choice in request["measures"]],
            "kind": document.get("kind", request["kind"]),
            "layers": len(document.get("layers", ())),
            "heads": len(document.get("heads", ())),
            "layer_numbers": document.get("layers", []),
            "head_numbers": document.get("heads", []),
            "windows": _windows(stored) if stored else [],
            "words": _words(document.get("tokens", [])),
            "key_words": _words(document["key_tokens"]) if document.get("key_tokens") else None,
            "maps": _maps(stored) if stored else {},
            "summaries": _summaries(stored) if stored else {},
            "links": _links(id_, document),
            "error": to_problem(job) if job and not stored else None,
        }
    )


def _windows(stored: Source) -> list[Window]:
    keys = stored.document["shape"][3]
    return [window_of(counts, keys) for counts in stored.arrays["keys"]]


def to_problem(job: Job) -> Problem | None:
    """Return the error of a failed job; None for any other job."""
    return Problem.model_validate(job.error) if job.error and job.status == "failed" else None


def _words(tokens: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the token indices and the text of each word."""
    counts, texts = word_groups(TOKENS.validate_python(tokens))
    words, start = [], 0
    for count, text in zip(counts, texts, strict=True):
        words.append({"tokens": list(range(start, start + count)), "text": text})
        start += count
    return words


def _maps(stored: Source) -> dict[str, MapSchema]:
    return {
        lens: MapSchema(
            shape=stored.document["shapes"][lens],
            by_layer=LENSES[lens].of == "layer",
            params=_params(stored, lens),
            signed=LENSES[lens].signed,
            stored=lens in stored.document["kept"],
            **{part: _note(stored, lens, part) for part in ("rank", "condition", "identical")},
            undefined=_undefined(stored, lens),
        )
        for lens in stored.document["lenses"]
    }


def _params(stored: Source, lens: str) -> dict[str, Any]:
    chosen = next(choice for choice in stored.document["request"]["lenses"] if choice["name"] == lens)
    return {name: value for name, value in chosen.items() if name != "name"}


def _note(stored: Source, lens: str, part: str) -> Any:
    values = stored.arrays.get(f"note/{lens}/{part}")
    return None if values is None else to_lists(values)


def _undefined(stored: Source, lens: str) -> Any:
    """Count the undefined rows per layer and head [L, H]: those the lens reports, and all rows of a head that its layer does not have."""
    absent = np.isnan(stored.arrays[f"tile/{lens}/scale"])
    noted = stored.arrays.get(f"note/{lens}/undefined", np.zeros(absent.shape, np.int32))
    counts = np.where(absent, stored.document["shapes"][lens][2], noted)
    return counts.tolist() if counts.any() else None


def _summaries(stored: Source) -> dict[str, dict[str, Summary]]:
    return {
        name: {lens: _summary(name, stored.arrays[f"measure/{name}/{lens}"]) for lens in by_lens}
        for name, by_lens in stored.document["measures"].items()
    }


def _summary(name: str, values: Any) -> Summary:
    measure = MEASURES[name]
    columns = {
        column: {**_spread(values[..., place]), "unit": measure.unit_of(column)}
        for place, column in enumerate(measure.columns)
    }
    whole = {"min": None, "mean": None, "max": None} if columns else _spread(values)
    return Summary.model_validate({"unit": measure.unit, "shape": list(values.shape), "columns": columns, **whole})


def _spread(values: Any) -> dict[str, float | None]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return {"min": None, "mean": None, "max": None}
    return {"min": float(finite.min()), "mean": float(finite.mean()), "max": float(finite.max())}


def _links(id_: str, document: dict[str, Any]) -> dict[str, str]:
    base = f"{PREFIX}/{id_}"
    links = {"self": base, "events": f"{base}/events"}
    if document:
        links |= {f"maps.{lens}": f"{base}/maps/{lens}" for lens in document["kept"]}
        links |= {f"grid.{lens}": f"{base}/grid/{lens}" for lens in document["lenses"]}
        for name, lenses in document["measures"].items():
            other = f"?lens={next(iter(lenses))}" if lenses and "weights" not in lenses else ""  # weights by default
            links[f"measures.{name}"] = f"{base}/measures/{name}{other}"
        links["export"] = f"{base}/export"
    return links
