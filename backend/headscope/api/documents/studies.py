"""The JSON documents of a study, built from its job, the states of its chunks while it runs, and its stored result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...jobs import ChunkState, Job
from ...store import Stored
from ...studies.figure_needs import drawable_figures
from ...studies.results.tables import table_names
from ..schemas.studies import ModelMechanism, StudyDocument, StudyEvent, StudyItem, StudyProgress
from .analyses import to_problem

PREFIX = "/api/v1/studies"
# The remaining time is estimated from this many recent chunks.
RECENT_CHUNKS = 16
# The chunks' share of a study's progress; the rest is their aggregation.
CHUNK_SHARE = 0.99
# The results of a study that is not done.
NO_RESULTS: dict[str, Any] = {
    "tokens": 0,
    "cut": 0,
    "failed": [],
    "failed_count": 0,
    "unaligned": 0,
    "not_compared": None,
    "timing_ms": [],
    "versions": [],
}


def to_progress(job: Job | None, chunks: Sequence[ChunkState] = (), position: int | None = None) -> StudyProgress:
    """Return the progress of a study, computed from its job and its chunks."""
    sizes = [inputs for *_, inputs, _ in json.loads(job.payload)["chunks"]] if job else []
    if job is None or job.status == "done":
        return _at(1.0, "done", "", sum(sizes), sum(sizes))
    if job.terminal:
        return _at(0.0, job.stage, "", 0, sum(sizes))
    running = [chunk for chunk in chunks if chunk.status == "running"]
    # Chunks are removed when their study ends: one that ended after `job` was read has none left.
    left = [chunk for chunk in chunks if chunk.status in ("queued", "running")]
    ended = sum(sizes) - sum(sizes[chunk_number(chunk)] for chunk in left)
    partial = sum(sizes[chunk_number(chunk)] * chunk.fraction for chunk in running)
    latest = max(running, key=lambda chunk: chunk.started or 0, default=job)
    fraction = CHUNK_SHARE * (ended + partial) / max(sum(sizes), 1)
    progress = _at(round(fraction, 4), latest.stage, latest.detail, ended, sum(sizes))
    queued = latest.status == "queued"
    return progress.model_copy(
        update={"seconds_left": _estimate_seconds(chunks), "position": position if queued else None}
    )


def _at(fraction: float, stage: str, detail: str, inputs: int, of: int) -> StudyProgress:
    return StudyProgress(
        fraction=fraction, stage=stage, detail=detail, position=None, inputs=inputs, of=of, seconds_left=None
    )


def chunk_number(chunk: ChunkState) -> int:
    """Return the index of a chunk in its study."""
    return int(chunk.id.split(".")[1])


def _estimate_seconds(chunks: Sequence[ChunkState]) -> float | None:
    """Estimate the remaining time from the recent time per token and the number of running chunks; None before the first chunk has ended."""
    timed = [
        (chunk.finished, chunk.finished - chunk.started, chunk.tokens or 0)
        for chunk in chunks
        if chunk.finished and chunk.started
    ]
    last = sorted(timed)[-RECENT_CHUNKS:]
    tokens = sum(tokens for *_, tokens in last)
    if not tokens:
        return None
    left = sum((chunk.tokens or 0) * (1 - chunk.fraction) for chunk in chunks if chunk.status in ("queued", "running"))
    workers = max(sum(chunk.status == "running" for chunk in chunks), 1)
    return round(left * sum(seconds for _, seconds, _ in last) / tokens / workers, 1)


def status_of(job: Job, chunks: Sequence[ChunkState]) -> str:
    """Return the status of a study. It is running once a chunk has started, although its own job is queued until the last one is done."""
    started = job.status == "queued" and any(chunk.status != "queued" for chunk in chunks)
    return "running" if started else job.status


def to_event(job: Job, chunks: Sequence[ChunkState], position: int | None) -> StudyEvent:
    """Return the data of a server-sent event."""
    return StudyEvent.model_validate(
        {
            "id": job.id,
            "status": status_of(job, chunks),
            "progress": to_progress(job, chunks, position),
            "attempts": job.attempts,
            "error": to_problem(job),
        }
    )


def to_item(job: Job, chunks: Sequence[ChunkState]) -> StudyItem:
    """Return a study as an item of a list."""
    planned = json.loads(job.payload)
    return StudyItem.model_validate(
        {
            "id": job.id,
            "status": status_of(job, chunks),
            "progress": to_progress(job, chunks),
            "dataset": planned["dataset"]["name"],
            "variants": [{name: one[name] for name in ModelMechanism.model_fields} for one in planned["variants"]],
            "lenses": planned["lenses"],
            "measures": planned["measures"],
            "created": job.created,
        }
    )


def to_document(
    id_: str, job: Job | None, stored: Stored | None, chunks: Sequence[ChunkState] = (), position: int | None = None
) -> StudyDocument:
    """Return the document of a study. At least one of `job` and `stored` is required."""
    known = {**NO_RESULTS, **(stored.document if stored else json.loads(job.payload) if job else {})}
    inputs = stored.document["inputs"] if stored else 0
    names = ("request", "dataset", "variants", *NO_RESULTS)
    return StudyDocument.model_validate(
        {
            "id": id_,
            "status": "done" if stored or job is None else status_of(job, chunks),
            "progress": _at(1.0, "done", "", inputs, inputs) if stored else to_progress(job, chunks, position),
            "attempts": job.attempts if job else 1,
            **{name: known[name] for name in names},
            "inputs": inputs,
            "lenses": list(known["lenses"]),
            "measures": list(known["measures"]),
            "figures": drawable_figures(known) if stored else [],
            "tables": table_names(known) if stored else [],
            "created": job.created if job else None,
            "finished": job.finished if job else None,
            "links": _links(id_),
            "error": to_problem(job) if job and not stored else None,
        }
    )


def _links(id_: str) -> dict[str, str]:
    base = f"{PREFIX}/{id_}"
    return {"self": base, **{name: f"{base}/{name}" for name in ("events", "heads", "examples", "export")}}
