"""The JSON documents of a study, put together from its job, its chunks while it is under way, and its stored result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...jobs import ChunkState, Job
from ...store import Stored
from ...studies.results import tables
from ..schemas.studies import StudyDocument, StudyEvent, StudyItem, StudyProgress
from . import analyses

PREFIX = "/api/v1/studies"
# The pace of a study is that of so many of its chunks, the last ones.
PACE = 16
# Of the work of a study, the share of its chunks; the rest is for putting them together.
CHUNKS = 0.99
# What a study that is not done has found.
NOTHING: dict[str, Any] = {
    "tokens": 0,
    "cut": 0,
    "failed": [],
    "failed_count": 0,
    "unaligned": 0,
    "not_compared": None,
    "timing_ms": [],
}


def progress(job: Job | None, parts: Sequence[ChunkState] = (), position: int | None = None) -> StudyProgress:
    """How far a study is, by its job and its chunks."""
    sizes = [inputs for *_, inputs, _ in json.loads(job.payload)["chunks"]] if job else []
    if job is None or job.status == "done":
        return _at(1.0, "done", "", sum(sizes), sum(sizes))
    if job.terminal:
        return _at(0.0, job.stage, "", 0, sum(sizes))
    ended = sum(sizes[number(part)] for part in parts if part.status in ("done", "failed"))
    begun = sum(sizes[number(part)] * part.fraction for part in parts if part.status == "running")
    running = [part for part in parts if part.status == "running"]
    said = max(running, key=lambda part: part.started or 0, default=job)
    fraction = CHUNKS * (ended + begun) / max(sum(sizes), 1)
    found = _at(round(fraction, 4), said.stage, said.detail, ended, sum(sizes))
    waits = said.status == "queued"
    return found.model_copy(update={"seconds_left": _seconds_left(parts), "position": position if waits else None})


def _at(fraction: float, stage: str, detail: str, inputs: int, of: int) -> StudyProgress:
    return StudyProgress(
        fraction=fraction, stage=stage, detail=detail, position=None, inputs=inputs, of=of, seconds_left=None
    )


def number(part: ChunkState) -> int:
    """Which chunk of its study it is, from 0."""
    return int(part.id.split(".")[1])


def _seconds_left(parts: Sequence[ChunkState]) -> float | None:
    """By how long the last chunks took per token, with as many workers as are at it now; None before the first one has ended."""
    timed = [
        (part.finished, part.finished - part.started, part.tokens) for part in parts if part.finished and part.started
    ]
    last = sorted(timed)[-PACE:]
    tokens = sum(tokens for *_, tokens in last)
    if not tokens:
        return None
    left = sum(part.tokens * (1 - part.fraction) for part in parts if part.status in ("queued", "running"))
    workers = max(sum(part.status == "running" for part in parts), 1)
    return round(left * sum(seconds for _, seconds, _ in last) / tokens / workers, 1)


def status(job: Job, parts: Sequence[ChunkState]) -> str:
    """That of the study: it runs from its first chunk on, while its own job waits for the last one."""
    begun = job.status == "queued" and any(part.status != "queued" for part in parts)
    return "running" if begun else job.status


def event(job: Job, parts: Sequence[ChunkState], position: int | None) -> StudyEvent:
    """What the event stream says of a study."""
    return StudyEvent.model_validate(
        {
            "id": job.id,
            "status": status(job, parts),
            "progress": progress(job, parts, position),
            "attempts": job.attempts,
            "error": analyses.error(job),
        }
    )


def item(job: Job, parts: Sequence[ChunkState]) -> StudyItem:
    """A study as an item of a list."""
    planned = json.loads(job.payload)
    return StudyItem.model_validate(
        {
            "id": job.id,
            "status": status(job, parts),
            "progress": progress(job, parts),
            "dataset": planned["dataset"]["name"],
            "variants": planned["variants"],
            "lenses": planned["lenses"],
            "measures": planned["measures"],
            "created": job.created,
        }
    )


def study(
    id_: str, job: Job | None, stored: Stored | None, parts: Sequence[ChunkState] = (), position: int | None = None
) -> StudyDocument:
    """The whole document. At least one of job and stored is given."""
    found = stored.document if stored else {**NOTHING, **json.loads(job.payload)} if job else NOTHING
    inputs = stored.document["inputs"] if stored else 0
    named = ("request", "dataset", "variants", *NOTHING)
    return StudyDocument.model_validate(
        {
            "id": id_,
            "status": "done" if stored or job is None else status(job, parts),
            "progress": _at(1.0, "done", "", inputs, inputs) if stored else progress(job, parts, position),
            "attempts": job.attempts if job else 1,
            **{name: found[name] for name in named},
            "inputs": inputs,
            "lenses": list(found["lenses"]),
            "measures": list(found["measures"]),
            "figures": tables.drawable(found) if stored else [],
            "tables": tables.names(found) if stored else [],
            "created": job.created if job else None,
            "finished": job.finished if job else None,
            "links": _links(id_),
            "error": analyses.error(job) if job and not stored else None,
        }
    )


def _links(id_: str) -> dict[str, str]:
    base = f"{PREFIX}/{id_}"
    return {"self": base, **{name: f"{base}/{name}" for name in ("events", "heads", "examples", "export")}}
