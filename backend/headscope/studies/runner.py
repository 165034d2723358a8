"""Run a study in this process, chunk by chunk. Finished chunks can be stored in a folder, so that an interrupted study resumes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..errors import InvalidRequest
from ..models.loading import Model
from ..store import export
from . import chunk
from .aggregate import Aggregate
from .data.dataset import Dataset
from .plan import ChunkPlan, select_rows
from .request import StudyRequest
from .results.summary import StudySummary

Progress = Callable[[float, str, str], None]


class Checkpoint:
    """A folder that holds the aggregate of every finished chunk, by the chunk's id. Files are written atomically."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, id_: str) -> Aggregate | None:
        """Return the aggregate of a chunk; None if it is missing or damaged."""
        with suppress(ValueError):
            found = export.read_safetensors(self._path(id_))
            if found.document.get("chunk") == id_:
                del found.document["chunk"]
                return Aggregate(found.document, dict(found.arrays))
        return None

    def put(self, id_: str, aggregate: Aggregate) -> None:
        """Store the aggregate of a chunk."""
        path = self._path(id_)
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        export.write_safetensors(export.Flat({**aggregate.document, "chunk": id_}, aggregate.arrays), unfinished)
        unfinished.replace(path)

    def _path(self, id_: str) -> Path:
        return self._folder / f"{id_}.safetensors"


def run_study(
    models: Sequence[Model],
    dataset: Dataset,
    request: StudyRequest,
    *,
    checkpoint: Path | None = None,
    limit: int | None = None,
    progress: Progress = lambda fraction, stage, detail: None,
) -> tuple[StudySummary, str]:
    """Run a study, one chunk after another, and return its result and id. `models` has one model per variant.

    Chunks found in the `checkpoint` folder are not run again. `limit` bounds the memory of each analysis in bytes.
    """
    chunk.check(models, request)
    planned = ChunkPlan(select_rows(dataset.rows, request.limit, request.seed), models[0].tokenizer, request.max_tokens)
    digests = [model.digest for model in models]
    stored = None if checkpoint is None else Checkpoint(checkpoint)
    merged: Aggregate | None = None
    done = 0

    def report(inputs: int) -> None:
        progress(inputs / planned.inputs, "inputs", f"{inputs} of {planned.inputs}")

    for part in planned:
        id_ = request.chunk_key(digests, part.digest)
        aggregate = stored.get(id_) if stored else None
        if aggregate is None:
            within = partial(lambda before, inputs: report(before + inputs), done)
            aggregate = chunk.run(models, part.rows, request, limit=limit, progress=within)
            if stored:
                stored.put(id_, aggregate)
        done += len(part)
        report(done)
        merged = aggregate if merged is None else merged.merge(aggregate)
    if merged is None:
        raise InvalidRequest("The data set has no row that can be analysed.", pointer="/dataset")
    return merged.summary(request, dataset.report()), request.key(digests, planned.digest, dataset.report())
