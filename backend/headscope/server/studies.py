"""Studies on a server: one job per chunk of the data set, and a last job that merges the chunks."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from .. import logs
from ..errors import BudgetExceeded
from ..jobs import LOCAL, Job, Work
from ..settings import Settings
from ..store import Blobs
from ..studies.data.dataset import Dataset, Row
from ..studies.plan import Chunk, ChunkPlan, chunk_id, select_rows
from ..studies.request import StudyRequest
from .admission import Admission
from .datasets import Datasets
from .job_queue import JobQueue

logger = logging.getLogger("headscope")
# Behind single analyses; in order of arrival among batches.
PRIORITY = 1


class Studies:
    """Admission of studies. Methods block; the API calls them in threads."""

    def __init__(
        self,
        settings: Settings,
        admission: Admission,
        datasets: Datasets,
        inputs: Blobs,
        jobs: JobQueue,
    ) -> None:
        self._settings, self._admission, self._datasets = settings, admission, datasets
        self._inputs, self._jobs = inputs, jobs

    def submit(self, request: StudyRequest, owner: str | None = None) -> tuple[str, bool]:
        """Check and queue a study for `owner`, and return its id and whether its result was stored; None is the one user of a server without users.

        Raises InvalidRequest, Unknown, Unsupported, ModelError, BudgetExceeded or QueueFull before anything is queued.
        """
        request, digests, tokenizer = self._admission.admit_study(request)
        named, dataset = self._datasets.load(request.dataset, request.columns, request.bad_rows, owner)
        request = request.model_copy(update={"dataset": named})
        planned = ChunkPlan(self._select_rows(dataset, request), tokenizer, request.max_tokens)
        if tokenizer:
            self._admission.check_study_size(request, planned.longest)
        report = {**dataset.report(), "id": named}  # with the id, which another user's equal rows must not have
        id_ = request.key(digests, planned.digest, report)
        if self._jobs.results.has(id_):
            if owner:
                self._jobs.database.grant(owner, id_)
            return id_, True
        self._check_queue(planned, owner)
        parts = [
            [request.chunk_key(digests, chunk.digest), self._store_chunk(request, chunk), len(chunk), chunk.tokens]
            for chunk in planned
        ]
        payload = {
            "study": id_,
            "models": digests,
            "chunks": parts,
            **describe(request, report),
        }
        self._enqueue(
            Work(
                id_, json.dumps(payload), digests[0], owner=owner or LOCAL, request_id=logs.request_id(), kind="study"
            ),
            owner,
        )
        return id_, False

    def _select_rows(self, dataset: Dataset, request: StudyRequest) -> Iterator[Row]:
        """Yield the rows to analyse. Raises BudgetExceeded at the first row beyond the limit of a study."""
        most = self._settings.study_inputs
        for number, row in enumerate(select_rows(dataset.rows, request.limit, request.seed)):
            if number == most:
                raise BudgetExceeded(
                    f"The data set has more inputs than a study may have. Set limit to {most} or less.",
                    pointer="/limit",
                    limit=most,
                )
            yield row

    def _check_queue(self, planned: ChunkPlan, owner: str | None) -> None:
        """Raise BudgetExceeded for a study that no queue takes, however empty it is."""
        most = self._settings.max_queue if owner is None else min(self._settings.max_queue, self._settings.user_queue)
        if len(planned) >= most:
            raise BudgetExceeded(
                f"The study would be {len(planned) + 1} jobs, and {most} may wait. Set limit to fewer inputs, or have HEADSCOPE_MAX_QUEUE and HEADSCOPE_USER_QUEUE raised.",
                pointer="/limit",
                limit=most,
                actual=len(planned) + 1,
            )

    def _store_chunk(self, request: StudyRequest, chunk: Chunk) -> str:
        """Store the request and rows of a chunk for the workers, and return the name of the blob."""
        head = json.dumps(request.model_dump()).encode()
        return self._inputs.put_bytes(head + b"\n" + chunk.data)

    def resubmit(self, job: Job) -> None:
        """Queue a study again, as it was accepted."""
        self._enqueue(job.work, None)

    def _enqueue(self, study: Work, owner: str | None) -> None:
        job = self._jobs.database.get(study.id)
        chunks = [] if job and not job.terminal else _chunk_work(study)
        # In this order, so that the job that merges is taken last.
        self._jobs.enqueue([*chunks, study], owner, study.id, PRIORITY)
        logger.info("accepted", extra={"jobs": len(chunks) + 1, "first": study.id, "batch": study.id})


def describe(request: StudyRequest, report: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a study that has not finished."""
    return {
        "request": request.model_dump(),
        "dataset": report,
        "variants": [
            {
                "model": one.model, "mechanism": one.mechanism.model_dump(),
                "layers": [], "heads": [], "head_width": 0, "causal": False,
            }
            for one in request.variants
        ],
        "lenses": request.analysis.lens_names,
        "measures": request.quantities,
    }  # fmt: skip


def _chunk_work(study: Work) -> list[Work]:
    """Return the chunks of a study as work. Their ids name their number and content."""
    planned = json.loads(study.payload)
    parts: Sequence[tuple[str, str, int, int]] = planned["chunks"]
    return [
        Work(
            id=chunk_id(study.id, number, part),
            payload=json.dumps({"study": study.id, "models": planned["models"], "part": part, "blob": blob}),
            model=study.model,
            tokens=tokens,
            owner=study.owner,
            request_id=study.request_id,
            kind="chunk",
        )
        for number, (part, blob, _, tokens) in enumerate(parts)
    ]
