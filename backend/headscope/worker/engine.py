"""The engine of a worker process: keeps models loaded, runs analyses and stores their results."""

from __future__ import annotations

import gc
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from .. import logs, stores
from ..analysis import memory, pipeline
from ..analysis.pipeline import AnalysisTask
from ..analysis.request import AnalysisRequest, versions, with_stored_image
from ..capture import examine
from ..database import Database
from ..errors import Cancelled, CorruptModel, HeadscopeError, OutOfMemory, StorageFull
from ..jobs import Job, Problem, ProgressReporter, metrics
from ..models import free_memory, loading, safety
from ..models.catalog import Catalog
from ..models.loading import Model
from ..models.located import Located
from ..settings import Settings
from ..store import Writer
from .effect_jobs import EffectJobs
from .head_score_jobs import HeadScoreJobs
from .study_jobs import ReportProgress, StudyJobs

logger = logging.getLogger("headscope.worker")

# Default of the setting batch_tokens on a GPU.
GPU_BATCH_TOKENS = 16_384
# A job reports its progress from this age on (s): earlier reports would cost more than a short job itself.
QUIET_SECONDS = 0.1
# Shortest time between two progress reports (s). A report takes some ms of the processors that the job runs on: a transaction here, two queries and an event
# in the server.
PROGRESS_SECONDS = 0.1

CHANGED = "The model's files changed after the request was accepted. Send it again."
# Errors of a single job; any other exception is a fault of this process.
EXPECTED = (HeadscopeError, MemoryError, OSError)


def ignore_progress(fraction: float, stage: str, detail: str, *, force: bool = False) -> None:
    """Discard progress, if no job waits for the model."""


@dataclass(frozen=True, kw_only=True)
class JobTask(AnalysisTask):
    """The analysis of a job, with its model and the writer that stores its result."""

    job: Job
    located: Located
    sink: Writer
    progress: ReportProgress


class AnalysisEngine:
    """The engine of both deployments: an LRU cache of loaded models, and the jobs that run on them."""

    def __init__(self, settings: Settings, facts: Database) -> None:
        self._settings = settings
        self._catalog = Catalog(settings)
        self._results, self._inputs = stores.results(settings, facts), stores.inputs(settings, facts)
        self._studies = StudyJobs(settings, self._catalog, self._results, self._inputs, self.model)
        uploads = stores.uploads(settings, facts)
        effects = EffectJobs(self._results, uploads, self._load_accepted, self._request)
        scores = HeadScoreJobs(self._results, self._load_accepted)
        self._alone = {"effect": effects.effect, "head-scores": scores.head_scores, "chunk": self._studies.chunk}
        self._alone["download"] = self._download
        self._ahead = iter(self._catalog.preloaded())
        # By digest and the type of their weights.
        self._models: OrderedDict[tuple[str, str], Model] = OrderedDict()
        self.warm: frozenset[str] = frozenset()  # digests of the loaded models, read by other threads
        cuda = settings.device.startswith("cuda") or (settings.device == "auto" and torch.cuda.is_available())
        self._device = settings.device if settings.device != "auto" else "cuda" if cuda else "cpu"
        default = GPU_BATCH_TOKENS if cuda else 0
        self.most_tokens = default if settings.batch_tokens is None else settings.batch_tokens
        torch.set_num_threads(settings.threads or free_memory.container_cores(torch.get_num_threads()))
        free_memory.keep_freed()

    def model(self, located: Located, progress: ReportProgress = ignore_progress, dtype: str = "float32") -> Model:
        """Return the model of these files for analyses in `dtype`, loading it if necessary. Evicts the least recently used models beyond warm_bytes."""
        key = located.digest(), _kept_dtype(located, dtype)
        if key not in self._models:
            metrics.add("model_loads")
            model = self._load(located, progress, dtype)
            # After a download or a conversion, the digest of its files and their types are known.
            key = model.digest, _kept_dtype(located if model.source is None else model.source, dtype)
            self._models[key] = model
            while (
                sum(kept.bytes for kept in self._models.values()) > self._settings.warm_bytes and len(self._models) > 1
            ):
                self._models.popitem(last=False)
            self.warm = frozenset(digest for digest, _ in self._models)
            gc.collect()  # models that were evicted refer to themselves
        self._models.move_to_end(key)
        return self._models[key]

    def _load_accepted(self, job: Job, name: str, progress: ReportProgress, dtype: str) -> Model:
        """Return the model of a job. Raises CorruptModel if its files changed since the job was accepted."""
        return self.model(self._locate_accepted(job, name), progress, dtype)

    def _locate_accepted(self, job: Job, name: str) -> Located:
        """Return where the model of a job is. Raises CorruptModel if its files changed since the job was accepted, perhaps by an earlier version."""
        located = self._catalog.locate(name)
        self._catalog.check(located)
        if located.local and job.model not in located.accepted_digests():
            raise CorruptModel(CHANGED)
        return located

    def _load(self, located: Located, progress: ReportProgress, dtype: str) -> Model:
        """Load the model, downloading it first if necessary, and report its size as progress."""

        def report_download(done: int, total: int) -> None:
            # Always reported: the wait after the last bytes may be long.
            detail = f"{located.name}, {_downloaded(done, total)}"
            progress(0.0, "loading", detail, force=True)

        progress(0.0, "loading", f"{located.name}, {memory.size(located.bytes)}" if located.local else located.name)
        return loading.load(located, self._device, report_download, dtype)

    def prewarm(self) -> bool:
        """Load and examine the next model of the setting `preload` if it is on this machine and fits; return False if there is none."""
        name = next(self._ahead, None)
        if name is not None:
            located = self._catalog.locate(name, pointer=None)
            if located.local and self._fits(located):
                examine(self.model(located))
        return name is not None

    def _fits(self, located: Located) -> bool:
        """Return whether a model may be loaded unasked: the first one, and others that evict none and take half of the free memory at most."""
        needed = max(located.bytes, 4 * (located.parameters or 0))
        kept = sum(model.bytes for model in self._models.values())
        free = free_memory.free_bytes(torch.device(self._device))
        return not kept or (kept + needed <= self._settings.warm_bytes and 2 * needed <= free)

    def run(self, jobs: Sequence[Job], reporter: ProgressReporter) -> dict[str, Problem | None]:
        """Run jobs of one recipe, or one part of a study. Return job id -> problem document, or None if the result is stored.

        An error of one job does not affect the others.
        """
        if jobs[0].kind != "analysis":
            return {job.id: self._run_alone(job, reporter) for job in jobs}
        problems = dict[str, Problem | None]()
        with ExitStack() as writers:
            tasks = []
            for job in jobs:
                _log_start(job)
                try:
                    task = self._task(job, reporter, writers)
                except EXPECTED as error:
                    problems[job.id] = _log_end(job, error)
                else:
                    tasks += [task] if task else []
                    problems[job.id] = None
            return problems | (self._analyse(tasks) if tasks else {})

    def _download(self, job: Job, progress: ReportProgress) -> None:
        """Download a model into the hub's cache and check its files."""

        def report(done: int, total: int) -> None:
            # Always reported: the wait after the last bytes may be long.
            progress(done / total if total else 0.0, "loading", _downloaded(done, total), force=True)

        located = self._catalog.locate(json.loads(job.payload)["model"])
        self._catalog.check(located)
        folder = located.folder or loading.fetch(located, report)
        safety.check(folder)
        self._catalog.check(self._catalog.locate(located.name))

    def _run_alone(self, job: Job, reporter: ProgressReporter) -> Problem | None:
        """Compute an effect, head scores or a chunk of a study, merge all chunks, or download a model; return the problem, or None."""
        _log_start(job)
        progress = _Progress(reporter, job)
        try:
            if job.kind == "study":
                self._studies.study(job, reporter, progress)
            else:
                self._alone[job.kind](job, progress)
        except EXPECTED as error:
            return _log_end(job, error)
        return _log_end(job, None)

    def _task(self, job: Job, reporter: ProgressReporter, writers: ExitStack) -> JobTask | None:
        """Prepare a job; return None if its result is already stored."""
        if self._results.exists(job.id):
            return None
        request = self._request(job.payload)
        located = self._locate_accepted(job, request.model)
        writer = writers.enter_context(self._results.writer(job.id, (job.id, job.run)))
        progress, keep = _Progress(reporter, job), self._settings.keep
        return JobTask(request=request, job=job, located=located, sink=writer, progress=progress, keep=keep)

    def _analyse(self, tasks: Sequence[JobTask]) -> dict[str, Problem | None]:
        """Load the model that the tasks share, run them, and store their results."""
        started = time.perf_counter()
        try:
            model = self.model(tasks[0].located, tasks[0].progress, tasks[0].request.dtype)
        except EXPECTED as error:
            return {task.job.id: _log_end(task.job, error) for task in tasks}
        loaded = time.perf_counter() - started
        outcomes = pipeline.run_many(
            model, tasks, limit=self._settings.job_bytes, on_pass=lambda: metrics.add("forward_passes")
        )
        problems = dict[str, Problem | None]()
        for task, outcome in zip(tasks, outcomes, strict=True):
            failure = outcome if isinstance(outcome, Exception) else self._store(task, outcome, loaded)
            problems[task.job.id] = _log_end(task.job, failure)
            if failure is None:
                waited = 0.0 if task.job.started is None else task.job.started - task.job.created
                times = {"wait": waited, "load": loaded, "run": time.perf_counter() - started}
                self._observe(task.request, times)
        return problems

    def _store(self, task: JobTask, result: pipeline.Result, loaded: float) -> Exception | None:
        """Store a result; return the error, or None."""
        result.timing_ms["load"] = round(loaded * 1e3, 1)
        try:
            task.progress(1.0, "writing", "", force=True)
            # Of this process: those in the job's id are of the server that accepted it, perhaps before an upgrade.
            named = {"id": task.job.id, "versions": versions()}
            written = task.sink.finish({**result.to_document(), **named}, result.to_arrays())
        except EXPECTED as error:
            return error
        metrics.add("written_bytes", written)
        return None

    def _request(self, payload: str) -> AnalysisRequest:
        """Parse a payload, and replace the name of a stored image by the image."""
        return with_stored_image(AnalysisRequest.model_validate_json(payload), self._inputs.read)

    def _observe(self, request: AnalysisRequest, seconds: dict[str, float]) -> None:
        """Record the durations of an analysis. To bound the number of time series, all models that are named by a hub id count as "other"."""
        model = "other" if "/" in request.model else request.model
        for name, value in seconds.items():
            metrics.add(f"{name}_seconds", value, model=model, lens=next(iter(request.lens_names), "none"))


def _kept_dtype(located: Located, dtype: str) -> str:
    """Return the type that the model's weights have in memory, as far as its files are known."""
    return "float32" if located.folder is None else loading.kept_dtype(located.folder, dtype)


def _downloaded(done: int, total: int) -> str:
    return f"{memory.size(done)} of {memory.size(total)} downloaded"


def _log_start(job: Job) -> None:
    with logs.bound(job=job.id, request_id=job.request_id):
        logger.info("%s begins", job.kind, extra={"attempt": job.attempts})


def _log_end(job: Job, error: Exception | None) -> Problem | None:
    """Log the end of a job, and return its problem document."""
    with logs.bound(job=job.id, request_id=job.request_id):
        problem = None if error is None else _problem(error)
        logger.info("%s ends", job.kind, extra={"end": problem["code"] if problem else "done"})
        return problem


def _problem(error: Exception) -> Problem:
    if isinstance(error, HeadscopeError):
        return error.problem()
    if isinstance(error, MemoryError):
        return OutOfMemory(pipeline.NO_ROOM).problem()
    logger.error("the job failed unexpectedly", exc_info=error)
    if isinstance(error, OSError) and error.errno in stores.FULL:
        return StorageFull(
            "The result could not be written because the disk is full. Free some space, then send the request again."
        ).problem()
    return HeadscopeError("The worker failed on this job; see its log.").problem()


class _Progress:
    """Progress of one job: reports to the server, and raises Cancelled once the job is cancelled."""

    def __init__(self, reporter: ProgressReporter, job: Job) -> None:
        self._reporter, self._job = reporter, job
        self._began, self._last = time.monotonic(), 0.0

    def __call__(self, fraction: float, stage: str, detail: str, *, force: bool = False) -> None:
        now = time.monotonic()
        young = now - self._began < QUIET_SECONDS and stage != "loading"  # which may be followed by nothing for long
        if young or (now - self._last < PROGRESS_SECONDS and not force):
            return
        self._last = now
        if not self._reporter.progress(self._job, round(fraction, 4), stage, detail):
            raise Cancelled("The analysis was cancelled.")
