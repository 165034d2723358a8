"""The composition root: settings become the objects that the API and the command line work with."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from .. import logs, stores
from ..analysis.request import AnalysisRequest, with_stored_image
from ..errors import BrokerUnavailable, HeadscopeError, NotReady, Unknown
from ..jobs import LOCAL, Embedded, Engine, Job, JobKind, Limits, Watcher
from ..models.catalog import Catalog
from ..settings import Settings
from ..store import Cache, Maintenance, Stored
from ..store.map_file import Corrupt
from .admission import Admission
from .datasets import Datasets
from .limiters import Limiters
from .studies import Studies

if TYPE_CHECKING:
    from ..jobs.cluster import Cluster

logger = logging.getLogger("headscope")
T = TypeVar("T")


class Service:
    """Everything one server has: the catalogue, the jobs and the results. Its methods block; the API calls them in threads.

    Raises HeadscopeError where its home cannot be used, or another server uses it.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock: int | None = None
        stores.prepare(settings)
        self._lock_home()
        with stores.usable():
            stores.recover(settings)
            self.results, self.inputs, uploads = (
                stores.results(settings),
                stores.inputs(settings),
                stores.uploads(settings),
            )
            self.database = stores.job_database(settings)
        self.catalog = Catalog(settings)
        self.cache, self.limiters = Cache(settings.cache_url), Limiters()
        self.datasets = Datasets(settings, uploads, self.database)
        self._maintenance = Maintenance(self.results, self.inputs, uploads)
        self.watcher = Watcher(self.database)
        self._admission = Admission(settings, self.catalog)
        self._repairing = threading.Lock()
        self._repairs: set[str] = set()
        self.jobs = self._build_jobs()
        self.studies = Studies(
            settings, self._admission, self.datasets, self.results, self.inputs, self.database, self.jobs.wake
        )

    def _build_jobs(self) -> Embedded | Cluster:
        """What does the jobs: a child process of this one, or workers anywhere."""
        settings = self.settings
        if settings.redis_url is None:
            return Embedded(
                self.database,
                create_engine,
                (settings,),
                job_seconds=settings.job_seconds,
                cancel_seconds=settings.cancel_seconds,
                prewarm=settings.prewarm,
                on_change=self.watcher.poke,
                discard_ended=self._discard_ended,
            )
        from ..jobs.cluster import Cluster

        return Cluster(
            self.database,
            settings.redis_url,
            job_seconds=settings.job_seconds,
            cancel_seconds=settings.cancel_seconds,
            discard_ended=self._discard_ended,
        )

    def _discard_ended(self) -> None:
        stores.discard_ended(self.results, self.database)

    def _lock_home(self) -> None:
        """Make this the only server of its home, unless it is a cluster's. Raises HeadscopeError if another one has it."""
        if self._lock is not None or self.settings.redis_url is not None:
            return
        with stores.usable():
            lock = os.open(self.settings.home / "server.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise HeadscopeError(
                "Another Headscope server uses this home. Stop it, or set HEADSCOPE_HOME to another folder."
            ) from None
        self._lock = lock

    def start(self) -> None:
        """Take up the jobs of an earlier run and begin. Raises HeadscopeError if another server has this home."""
        self._lock_home()
        self._maintenance.start()
        self.jobs.start()

    def stop(self) -> None:
        """Stop at once; unfinished jobs go on at the next start."""
        self._maintenance.stop()
        self.jobs.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def deployment(self) -> Literal["embedded", "cluster"]:
        """What does the jobs: a child process of this server, or workers anywhere."""
        return "embedded" if self.settings.redis_url is None else "cluster"

    def workers(self) -> int | None:
        """Number of a cluster's workers; None where a child process does the work."""
        return None if self.settings.redis_url is None else len(self.database.workers())

    def submit(
        self, requests: Sequence[AnalysisRequest], *, batch: bool = False, owner: str | None = None
    ) -> tuple[str | None, list[str]]:
        """Check and accept requests; the batch's id (None for one request) and their ids. All of them are accepted, or none.

        In a batch, errors point to the input that is wrong. `owner` may read them from now on; None is the one user of a server without users.

        Raises InvalidRequest, Unknown, Unsupported, ModelError, BudgetExceeded or QueueFull before anything is queued.
        """
        requests = [with_stored_image(request, self.inputs.read) for request in requests]
        work = [
            self._admission.admit(request, place if batch else None, owner or LOCAL, logs.request_id())
            for place, request in enumerate(requests)
        ]
        here = {one.id for one in work if self.results.has(one.id)}
        missing = {one.id: one for one in work if one.id not in here}
        named = uuid.uuid4().hex if len(requests) > 1 else None
        if missing:
            for one, request in zip(work, requests, strict=True):
                if one.id in missing and request.image is not None:
                    self.inputs.put_bytes(request.image.encode())
            limits = Limits(self.settings.max_queue, self.settings.user_queue if owner else None)
            self.database.enqueue(missing.values(), batch=named, priority=1 if named else 0, limits=limits)
            self.jobs.wake()
            logger.info("accepted", extra={"jobs": len(missing), "first": next(iter(missing)), "batch": named})
        if owner:
            for id_ in here:
                self.database.grant(id_, owner)
        return named, [one.id for one in work]

    def cancel(self, id_: str, owner: str | None = None, kind: JobKind = "analysis") -> bool:
        """Cancel a job that has not ended (True), or forget an ended one and its result (False). Raises Unknown.

        Of an owner only its own wish ends: what others asked for too goes on, or stays, for them, and is forgotten for the owner (False). What can be read
        has ended, even if its worker has still to say so.
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
        if not self.results.delete(id_) and not forgotten:
            raise unknown_job(kind)
        return False

    def _is_kind(self, id_: str, kind: JobKind) -> bool:
        """Whether nothing of that id is of another kind; what is damaged may be of any."""
        job = self.database.get(id_)
        if job is not None:
            return job.kind == kind
        try:
            stored = self.results.get(id_)
        except Corrupt:
            return True
        return stored is None or stored.document.get("kind_of", "analysis") == kind

    def find(self, id_: str, kind: JobKind = "analysis") -> tuple[Job | None, Stored | None]:
        """The job and the result of an analysis, or study, whichever there is. Raises Unknown, or Corrupt."""
        job, stored = self._look_up(id_)
        if (job and job.kind != kind) or (stored and stored.document.get("kind_of", "analysis") != kind):
            raise unknown_job(kind)
        if stored is None and (job is None or job.status == "done"):
            with self._repairing:  # whoever is just putting it aside queues it again before letting go
                job, stored = self._look_up(id_)
            if stored is None and (job is None or job.status == "done"):
                raise unknown_job(kind)
        return job, stored

    def find_or_recompute(self, id_: str, kind: JobKind = "analysis") -> tuple[Job | None, Stored | None]:
        """As find; a corrupt result is queued to be computed again. Raises Unknown."""
        try:
            return self.find(id_, kind)
        except Corrupt:
            self.recompute(id_)
            job = self.database.get(id_)
            if job is None:  # it was in the index only
                raise unknown_job(kind) from None
            return job, None

    def _look_up(self, id_: str) -> tuple[Job | None, Stored | None]:
        try:
            job = self.database.get(id_)
        except BrokerUnavailable:
            stored = self.results.get(id_)  # what is finished can be read without it
            if stored is None:
                raise
            return None, stored
        looks = job is None or job.status in ("done", "queued", "running")
        return job, self.results.get(id_) if looks else None

    def is_settled(self, id_: str) -> bool:
        """Whether no job of that id is under way, or has failed: nothing but its result says any more what it is. Raises BrokerUnavailable."""
        job = self.database.get(id_)
        return job is None or job.status == "done"

    def queue_position(self, job: Job) -> int | None:
        """How many jobs are taken before this one; None if it does not wait, or nobody can say now."""
        try:
            return self.database.position(job)
        except BrokerUnavailable:
            return None

    def get_result(self, id_: str, kind: JobKind = "analysis") -> Stored:
        """The result of a finished analysis, or study. Raises Unknown, NotReady or Corrupt."""
        job, stored = self.find(id_, kind)
        if stored is None:
            status = job.status if job else "gone"
            raise NotReady(
                f"The {kind} is {status}; there is nothing to read yet."
                if status in ("queued", "running")
                else f"The {kind} is {status}; send the request again."
            )
        return stored

    def recompute(self, id_: str) -> None:
        """Put a corrupt result aside and compute it again. Raises Unknown if it is not known what was asked, BrokerUnavailable if nothing can be queued now."""
        with self._repairing:  # of many readers who find it corrupt, one has it computed again
            self.database.enqueue([])  # refused while nothing new is taken: put aside then, it would be gone
            if not self.results.quarantine(id_):
                return
            logger.warning("analysis %s is corrupt on disk: put aside, computed again", id_)
            self.database.count("corrupt_results")
            job = self.database.get(id_)
            if job is None:
                raise unknown_job("analysis")
            self.studies.resubmit(job) if job.kind == "study" else self.database.enqueue([job.work])
            self._repairs.add(id_)
        self.jobs.wake()

    def is_recomputing(self, id_: str) -> bool:
        """Whether a result that was there before is being computed again."""
        with self._repairing:
            job = self.database.get(id_)
            if job is None or job.terminal:
                self._repairs.discard(id_)
            return id_ in self._repairs


def unknown_job(kind: JobKind) -> Unknown:
    """There is no such analysis, or study, or not any more."""
    return Unknown(kind, f"There is no {kind} of that id, or it made room for newer ones. Send its request again.")


def read_or_recompute(service: Service, id_: str, read: Callable[[Stored], T], kind: JobKind = "analysis") -> T | None:
    """`read` applied to a finished analysis, or study; None while one that was found corrupt is computed again."""
    try:
        return read(service.get_result(id_, kind))
    except Corrupt:
        service.recompute(id_)
    except NotReady:
        if not service.is_recomputing(id_):
            raise
    return None


def create_engine(settings: Settings) -> Engine:
    """What runs jobs. Its process imports torch and transformers; the server's never does."""
    from ..worker.engine import AnalysisEngine

    logs.configure(settings.log_format, settings.log_level)  # which a spawned process does not inherit
    return AnalysisEngine(settings)
