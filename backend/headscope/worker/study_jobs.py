"""The jobs of a study: computing a chunk of its inputs, and merging all chunks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..analysis.request import Versions, versions
from ..errors import CorruptModel, InvalidDataset, ModelError
from ..jobs import Job, ProgressReporter, metrics
from ..models.catalog import Catalog
from ..models.loading import Model
from ..models.located import Located
from ..settings import Settings
from ..store import Blobs, Results
from ..store.map_file import Corrupt
from ..studies import chunk
from ..studies.aggregate import Aggregate
from ..studies.plan import Chunk, chunk_id
from ..studies.request import SCHEMA, StudyRequest

# Interval (s) for polling whether another worker has finished a chunk.
POLL_SECONDS = 0.2
# Chunks whose versions differ in one of these have other numbers, not only other roundings.
NUMBERS = ("schema", "study_schema")
CHANGED = "The model's files changed after the study was accepted. Send it again."


class ReportProgress(Protocol):
    """A callback for progress; may raise Cancelled."""

    def __call__(self, fraction: float, stage: str, detail: str, *, force: bool = False) -> None: ...


@dataclass(frozen=True)
class ChunkJob:
    """A chunk of a study."""

    id: str  # of its result in the store
    models: list[str]  # digests of the variants' models when the study was accepted
    blob: str  # where its request and rows are stored
    sent: tuple[str, str | None]  # ids of the study and of the HTTP request
    attempt: tuple[str, int]  # id and run of the job that computes it


class StudyJobs:
    """The jobs of studies. `model` returns the loaded model of given files."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        results: Results,
        inputs: Blobs,
        model: Callable[[Located, ReportProgress], Model],
    ) -> None:
        self._settings, self._catalog = settings, catalog
        self._results, self._inputs, self._model = results, inputs, model
        # The latest study whose models could not be loaded, and why.
        self._failed: tuple[tuple[str, str | None], ModelError] | None = None

    def chunk(self, job: Job, progress: ReportProgress) -> None:
        """Compute a chunk, unless it is already stored."""
        payload = json.loads(job.payload)
        if not self._results.exists(payload["study"]) and not self._results.exists(job.id):
            sent, attempt = (payload["study"], job.request_id), (job.id, job.run)
            self._compute(ChunkJob(job.id, payload["models"], payload["blob"], sent, attempt), progress)

    def study(self, job: Job, reporter: ProgressReporter, progress: ReportProgress) -> None:
        """Merge all chunks in order. Wait for chunks that other workers are computing, and compute missing ones here."""
        if self._results.exists(job.id):
            return
        payload = json.loads(job.payload)
        parts = [
            ChunkJob(chunk_id(job.id, n, content), payload["models"], blob, (job.id, job.request_id), (job.id, job.run))
            for n, (content, blob, *_) in enumerate(payload["chunks"])
        ]
        total: Aggregate | None = None
        computed_by = list[Versions]()
        for number, part in enumerate(parts):
            progress(number / len(parts), "merging", "")
            found, by = self._wait_for(job.id, part, reporter, progress)
            total = found if total is None else total.merge(found)
            computed_by += [] if by in computed_by else [by]
        if total is None:
            raise InvalidDataset("The data set has no rows that can be analysed.", pointer="/dataset")
        summary = total.summary(StudyRequest.model_validate(payload["request"]), payload["dataset"])
        progress(1.0, "writing", "", force=True)
        with self._results.writer(job.id, (job.id, job.run)) as writer:
            document = {**summary.document, "versions": computed_by}
            metrics.add("written_bytes", writer.finish(document, summary.arrays))
        for part in parts:
            self._results.delete(part.id)

    def _wait_for(
        self, study: str, part: ChunkJob, reporter: ProgressReporter, progress: ReportProgress
    ) -> tuple[Aggregate, Versions]:
        """Return a chunk, computed by another worker or here, and the versions that computed it."""
        while True:
            found = self._find(part.id)
            if found is not None:
                return found
            if part.id not in reporter.running_elsewhere(study):
                return self._compute(part, progress), _versions()
            progress(1.0, "merging", "", force=True)
            time.sleep(POLL_SECONDS)

    def _find(self, id_: str) -> tuple[Aggregate, Versions] | None:
        """Return a stored chunk and the versions that computed it, or None; a corrupt one is quarantined, and one with other numbers is removed."""
        try:
            stored = self._results.get(id_)
            if stored is None:
                return None
            by, here = stored.document.get("versions", {}), _versions()
            if all(by.get(name) == here[name] for name in NUMBERS):
                return Aggregate(stored.document["aggregate"], stored.arrays), by
            self._results.delete(id_)
        except Corrupt:
            self._results.quarantine(id_)
        return None

    def _compute(self, part: ChunkJob, progress: ReportProgress) -> Aggregate:
        """Compute a chunk and store it. Raises InvalidDataset if its rows were evicted, and errors that concern all of its inputs."""
        data = self._inputs.read(part.blob)
        if data is None:
            raise InvalidDataset("The rows of this study were evicted. Send the study again.", pointer="/dataset")
        head, _, lines = data.partition(b"\n")
        request, rows = StudyRequest.model_validate_json(head), Chunk(lines)
        models = self._models(part, request, progress)
        size = len(rows)

        def report(done: int) -> None:
            progress(done / size, "forward", f"{done} of {size} inputs")

        aggregate = chunk.run(
            models,
            rows.rows,
            request,
            limit=self._settings.job_bytes,
            progress=report,
            on_pass=lambda: metrics.add("forward_passes"),
        )
        document: dict[str, Any] = {"kind_of": "chunk", "aggregate": aggregate.document, "versions": _versions()}
        with self._results.writer(part.id, part.attempt) as writer:
            metrics.add("written_bytes", writer.finish(document, aggregate.arrays))
        metrics.add("study_inputs", size)
        return aggregate

    def _models(self, part: ChunkJob, request: StudyRequest, progress: ReportProgress) -> list[Model]:
        """Load the models of a chunk. If that fails, for example because the hub does not answer, the study's other chunks fail without trying again."""
        if self._failed is not None and self._failed[0] == part.sent:
            raise self._failed[1]
        try:
            return [self._model(located, progress) for located in self._locate(request, part)]
        except ModelError as error:
            self._failed = part.sent, error.with_traceback(None)
            raise

    def _locate(self, request: StudyRequest, part: ChunkJob) -> list[Located]:
        """Locate the models of a chunk. Raises CorruptModel if their files changed since the study was accepted, perhaps by an earlier version."""
        found = [self._catalog.locate(variant.model) for variant in request.variants]
        for located, accepted in zip(found, part.models, strict=True):
            self._catalog.check(located)
            if located.local and accepted not in located.accepted_digests():
                raise CorruptModel(CHANGED)
        return found


def _versions() -> Versions:
    """Return the versions that determine the numbers of a chunk."""
    return {**versions(), "study_schema": SCHEMA}
