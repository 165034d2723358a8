"""The composition root: builds the objects of a server from its settings."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeVar

from .. import logs, stores
from ..analysis.request import AnalysisRequest, with_stored_image
from ..core.lazy import LazyModule
from ..database import schema
from ..errors import DatabaseUnavailable, HeadscopeError, NotReady, StorageFull, Unknown
from ..jobs import (
    LOCAL,
    Embedded,
    Job,
    JobDatabase,
    JobKind,
    Watcher,
    announcements,
    metrics,
)
from ..jobs.announcements import Announce
from ..jobs.embedded import Runs
from ..jobs.supervisor import Supervisor
from ..jobs.watch import ANNOUNCED_SECONDS, TICK_SECONDS
from ..models.catalog import Catalog
from ..models.sentence_encoder import SentenceEncoder
from ..settings import Settings
from ..store import Cache, Maintenance, Stored
from ..store.map_file import Corrupt
from .admission import Admission
from .datasets import Datasets
from .downloads import Downloads
from .effects import Effects
from .head_scores import HeadScoring
from .job_queue import JobQueue
from .limiters import Limiters
from .studies import Studies

if TYPE_CHECKING:
    from ..jobs import cluster
else:  # an embedded server needs neither Celery nor Redis
    cluster = LazyModule("headscope.jobs.cluster")

logger = logging.getLogger("headscope")
T = TypeVar("T")
# Builds the child process of an embedded server that runs its jobs, or its downloads.
BuildEmbedded = Callable[[Settings, JobDatabase, Announce, Callable[[], None], Runs], Embedded]
# So many results at most are remembered as final.
MOST_FINAL = 10_000


class Service:
    """One server: its catalogue, jobs and results. Methods block; the API calls them in threads.

    `build_embedded` builds the child process of an embedded server. Raises HeadscopeError if the data directory cannot be used, or is used by another server.
    """

    def __init__(self, settings: Settings, build_embedded: BuildEmbedded) -> None:
        self.settings, self._build = settings, build_embedded
        self._lock: int | None = None
        stores.prepare(settings)
        self._lock_home()
        with stores.usable():
            stores.recover_files(settings)
            self.facts = facts = stores.open_database(settings)
            self.database = JobDatabase(facts)
            self.results, self.inputs = stores.results(settings, facts), stores.inputs(settings, facts)
            uploads = stores.uploads(settings, facts)
        self.catalog, self.encoder = Catalog(settings), SentenceEncoder(settings)
        self.cache, self.limiters = Cache(settings.cache_url), Limiters()
        self.datasets = Datasets(settings, uploads, self.database)
        self._maintenance = Maintenance(self.results, self.inputs, uploads)
        self.watcher = Watcher(self.database, ANNOUNCED_SECONDS if settings.redis_url else TICK_SECONDS)
        self._admission = Admission(settings, self.catalog)
        self._repairing = threading.Lock()
        self._repairs: set[str] = set()
        self._final: set[str] = set()  # results, by digest
        with suppress(DatabaseUnavailable):  # the cluster tries again until it is there
            schema.prepare(self.facts)
        self.jobs: Supervisor = (
            self._build_embedded("jobs") if settings.redis_url is None else self._build_cluster(settings.redis_url)
        )
        self._supervisors = [self.jobs]
        self._queue = queue = JobQueue(settings, self.results, self.inputs, self.database, self.jobs.wake)
        self.studies = Studies(settings, self._admission, self.datasets, self.inputs, queue)
        self.effects = Effects(settings, self.catalog, queue, self.datasets)
        self.head_scores = HeadScoring(self.catalog, queue)
        self.downloads = self._build_downloads()

    def _build_embedded(self, runs: Runs) -> Embedded:
        """Return a child process that runs jobs, or downloads."""
        return self._build(self.settings, self.database, self.watcher.announce, self._discard_ended, runs)

    def _build_cluster(self, url: str) -> cluster.Cluster:
        """Return what hands jobs to the workers of a cluster."""
        return cluster.Cluster(
            self.database,
            url,
            job_seconds=self.settings.job_seconds,
            prepare=lambda: schema.prepare(self.facts),
            discard_ended=self._discard_ended,
        )

    def _build_downloads(self) -> Downloads:
        """Return the downloads. An embedded server runs them beside analyses, in a second child process."""
        jobs = self.jobs
        if self.settings.redis_url is None:
            jobs = self._build_embedded("downloads")
            self._supervisors.append(jobs)
        queue = JobQueue(self.settings, self.results, self.inputs, self.database, jobs.wake)
        return Downloads(self.catalog, queue, self.watcher)

    def _discard_ended(self) -> None:
        stores.discard_ended(self.results, self.database)

    def _lock_home(self) -> None:
        """Lock the data directory, unless it belongs to a cluster. Raises HeadscopeError if another server has locked it."""
        if self._lock is not None or self.settings.redis_url is not None:
            return
        with stores.usable():
            lock = os.open(self.settings.home / "server.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise HeadscopeError(
                "Another Headscope server uses this data directory. Stop it, or set HEADSCOPE_HOME to another folder."
            ) from None
        self._lock = lock

    def start(self) -> None:
        """Start, resuming the jobs of an earlier run. Raises HeadscopeError if another server uses the data directory."""
        self._lock_home()
        self._maintenance.start()
        for jobs in self._supervisors:
            jobs.start()
        if self.settings.prewarm:
            threading.Thread(target=self._prepare, name="prepare", daemon=True).start()
        if self.settings.redis_url:
            announcements.listen(self.settings.redis_url, self.watcher.announce, self.watcher.poke)

    def _prepare(self) -> None:
        """Prepare the first requests for models that are loaded in advance, while the worker process starts."""
        for name in self.catalog.preloaded():
            with suppress(HeadscopeError):  # such a request reports the error
                self._admission.prepare(name)

    def stop(self) -> None:
        """Stop immediately. Unfinished jobs are resumed at the next start."""
        self._maintenance.stop()
        for jobs in self._supervisors:
            jobs.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def deployment(self) -> Literal["embedded", "cluster"]:
        """Whether a child process of this server runs the jobs, or the workers of a cluster."""
        return "embedded" if self.settings.redis_url is None else "cluster"

    def workers(self) -> int | None:
        """Return the number of a cluster's workers; None for an embedded server."""
        return None if self.settings.redis_url is None else len(self.database.workers())

    def submit(
        self, requests: Sequence[AnalysisRequest], *, batch: bool = False, owner: str | None = None
    ) -> tuple[str | None, list[str], set[str]]:
        """Check and queue requests, and return the batch's id (None for a single request), their ids, and the ids whose results were stored already.

        Either all are accepted or none.

        In a batch, errors point to the invalid input. `owner` may read the results; None is the one user of a server without users.

        Raises InvalidRequest, Unknown, Unsupported, ModelError, BudgetExceeded, QueueFull or StorageFull before anything is queued.
        """
        requests = [with_stored_image(request, self.inputs.read) for request in requests]
        work = [
            self._admission.admit(request, place if batch else None, owner or LOCAL, logs.request_id())
            for place, request in enumerate(requests)
        ]
        stored = self.results.existing({one.id for one in work})
        missing = {one.id: one for one in work if one.id not in stored}
        named = uuid.uuid4().hex if len(requests) > 1 else None
        if owner and stored:
            self.database.grant(owner, *stored)
        if missing:
            for one, request in zip(work, requests, strict=True):
                if one.id in missing and request.image is not None:
                    self.inputs.put_bytes(request.image.encode())
            self._queue.enqueue(missing.values(), owner, named, 1 if named else 0)
            logger.info("accepted", extra={"jobs": len(missing), "first": next(iter(missing)), "batch": named})
        return named, [one.id for one in work], stored

    def cancel(self, id_: str, owner: str | None = None, kind: JobKind = "analysis") -> bool:
        """Cancel an unfinished job (True), or delete a finished one with its result (False). Raises Unknown.

        A job or result that other users have requested, too, is kept for them, and only forgotten for `owner` (False). A job whose result can be read
        counts as finished, even if its worker has not reported it yet.
        """
        if not self._is_kind(id_, kind):
            raise unknown_job(kind)
        if self.database.cancel(id_, owner):
            self.watcher.poke()
            if not self.results.exists(id_):
                return owner is None or self.database.may_read(id_, owner)
        forgotten = self.database.forget(id_, owner)
        if owner is not None and not forgotten:
            return False
        for effect in self.database.effects(id_):
            self.database.cancel(effect)
            self.database.forget(effect)
            self.results.delete(effect)
        if not self.results.delete(id_) and not forgotten:
            raise unknown_job(kind)
        return False

    def _is_kind(self, id_: str, kind: JobKind) -> bool:
        """Return whether a job or result of that id, if any, is of that kind. A corrupt result may be of any kind."""
        job = self.database.get(id_)
        if job is not None:
            return job.kind == kind
        try:
            stored = self.results.get(id_)
        except Corrupt:
            return True
        return stored is None or _kind_of(stored) == kind

    def find(self, id_: str, kind: JobKind = "analysis") -> tuple[Job | None, Stored | None]:
        """Return the job and the result of an analysis or study; either may be None. Raises Unknown or Corrupt."""
        job, stored = self._look_up(id_)
        if (job and job.kind != kind) or (stored and _kind_of(stored) != kind):
            raise unknown_job(kind)
        if stored is None and (job is None or job.status == "done"):
            with self._repairing:  # a thread that quarantines the result holds this lock until it is queued again
                job, stored = self._look_up(id_)
            if stored is None and (job is None or job.status == "done"):
                raise unknown_job(kind)
        return job, stored

    def find_or_recompute(self, id_: str, kind: JobKind = "analysis") -> tuple[Job | None, Stored | None]:
        """Like find, but queue a corrupt result to be computed again. Raises Unknown, or Corrupt if it is so again."""
        try:
            return self.find(id_, kind)
        except Corrupt:
            self.recompute(id_, kind)
        return self.find(id_, kind)  # which may be intact by now, so that nothing was queued

    def _look_up(self, id_: str) -> tuple[Job | None, Stored | None]:
        try:
            job = self.database.get(id_)
        except DatabaseUnavailable:
            stored = self.results.get(id_)  # finished results can be read without the broker
            if stored is None:
                raise
            return None, stored
        looks = job is None or job.status in ("done", "queued", "running")
        stored = self.results.get(id_) if looks else None
        if stored is not None and (job is None or job.status == "done"):
            if len(self._final) >= MOST_FINAL:
                self._final.clear()
            self._final.add(stored.digest)
        return job, stored

    def is_final(self, stored: Stored) -> bool:
        """Return whether no job of that id was unfinished or failed when it was looked up, so that the result alone describes it."""
        return stored.digest in self._final

    def queue_position(self, job: Job) -> int | None:
        """Return how many jobs are ahead of this one; None if it is not queued, or the broker cannot be reached."""
        if job.status != "queued":
            return None
        try:
            return self.database.position(job)
        except DatabaseUnavailable:
            return None

    def get_result(self, id_: str, kind: JobKind = "analysis") -> Stored:
        """Return the result of a finished analysis or study; the database is asked for its job until that has ended. Raises Unknown, NotReady or Corrupt."""
        stored = self.results.get(id_)
        if stored is not None and self.is_final(stored) and _kind_of(stored) == kind:
            return stored
        job, stored = self.find(id_, kind)
        if stored is None:
            raise NotReady(_why_missing(job, kind))
        return stored

    def read(self, id_: str, kind: JobKind, reader: Callable[[Stored], T]) -> T:
        """Call `reader` on a finished analysis or study. Raises Unknown, NotReady, or Corrupt if it can be read once its job has ended."""
        try:
            return reader(self._find_readable(id_, kind))
        except Corrupt:
            self.recompute(id_, kind)
            raise

    def _find_readable(self, id_: str, kind: JobKind) -> Stored:
        """Return the result. Raises Unknown, NotReady, or Corrupt if it can be read once its job has ended."""
        try:
            return self.get_result(id_, kind)
        except NotReady:
            if self._is_recomputed(id_):
                raise Corrupt from None
            raise

    def recompute(self, id_: str, kind: JobKind) -> None:
        """Quarantine a corrupt result and compute it again.

        Raises Unknown if its request is not known or its rows were evicted, and DatabaseUnavailable if nothing can be queued.
        """
        with self._repairing:  # only one of many concurrent readers queues it
            self.database.enqueue([])  # raises if nothing can be queued; quarantining it first would lose it
            if not self.results.quarantine(id_):
                return
            logger.warning("%s %s is corrupt on disk: quarantined, will be computed again", _noun(kind), id_)
            metrics.add("corrupt_results")
            job = self.database.get(id_)
            if job is None:
                raise unknown_job(kind)
            self._resubmit(job)
            self._repairs.add(id_)
        self.jobs.wake()

    def _resubmit(self, job: Job) -> None:
        """Queue a job again, as it was accepted. Raises Unknown for a study whose rows were evicted."""
        if job.kind != "study":
            self.database.enqueue([job.work], batch=job.batch)
            return
        try:
            self.studies.resubmit(job)
        except StorageFull:
            raise unknown_job("study") from None

    def _is_recomputed(self, id_: str) -> bool:
        """Return whether a corrupt result is being computed again, or any result has been since it was looked up."""
        with self._repairing:
            job = self.database.get(id_)
            if job is None or job.terminal:
                self._repairs.discard(id_)
                return job is not None and job.status == "done"
            return id_ in self._repairs


def _kind_of(stored: Stored) -> str:
    return str(stored.document.get("kind_of", "analysis"))


def unknown_job(kind: JobKind) -> Unknown:
    """Return the error for an analysis or study that does not exist, or no longer."""
    return Unknown(kind, f"There is no {_noun(kind)} of that id, or it was evicted. Send the request again.")


def _why_missing(job: Job | None, kind: JobKind) -> str:
    """Return why there is no result."""
    if job is not None and job.status in ("queued", "running"):
        return f"The {_noun(kind)} has not finished yet."
    if job is not None and job.status == "failed" and job.error is not None:
        return f"The {_noun(kind)} has failed: {job.error['detail']}"
    return f"The {_noun(kind)} is {job.status if job else 'gone'}; send the request again."


def _noun(kind: JobKind) -> str:
    """Return what a job is called in a sentence."""
    return "test of heads" if kind == "head-scores" else kind
