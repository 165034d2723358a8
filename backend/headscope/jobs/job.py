"""Jobs, workers, and the interface of a job database."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, Protocol

from ..errors import Cancelled, QueueFull, TimedOut, WorkerLost
from . import metrics

Status = Literal["queued", "running", "done", "failed", "cancelled"]
TERMINAL: frozenset[str] = frozenset({"done", "failed", "cancelled"})
# The owner of every job on a server without tokens.
LOCAL = "local"
# A job that has lost this many workers fails.
ATTEMPTS = 3
# Ended jobs are kept for this long (s), and at most this many; the same number of grants is kept per owner.
KEEP_SECONDS = 7 * 24 * 3600.0
KEEP_JOBS = 10_000
# Most jobs that one call of `trim` removes, so that it stays short.
TRIM_JOBS = 1_000
# A worker without a heartbeat for this long (s) is no longer listed.
GONE_SECONDS = 60.0

Problem = dict[str, Any]
# A study is computed in chunks, which are jobs of its batch. A download puts a model into the hub's cache and has no result.
JobKind = Literal["analysis", "study", "chunk", "download"]


@dataclass(frozen=True, slots=True)
class Work:
    """A request to run a job. `model` is the digest of the model's files. Jobs with the same `recipe` (a digest of the request without its input)
    and number of `tokens` may share a forward pass; with an empty recipe or None tokens a job runs alone. A chunk has no grants: it belongs to
    the study whose id is its batch.
    """

    id: str
    payload: str
    model: str = ""
    recipe: str = ""
    tokens: int | None = None
    owner: str = LOCAL
    request_id: str = ""
    kind: JobKind = "analysis"


@dataclass(frozen=True, slots=True)
class Job:
    """Accepted work. Times are seconds since 1970 on the clock of the job database.

    `version` grows with every change of any job. `run` identifies a claim, uniquely over all jobs, so a worker whose claim has expired cannot change
    the job. `attempts` counts the claims since the job was accepted; `worker` made the latest.
    `owner` is the one whose turn it takes; others may want it too.
    """

    id: str
    payload: str
    batch: str | None
    status: Status
    fraction: float
    stage: str
    detail: str
    attempts: int
    error: Problem | None
    created: float
    started: float | None
    finished: float | None
    version: int
    priority: int = 0
    owner: str = LOCAL
    model: str = ""
    recipe: str = ""
    tokens: int | None = None
    request_id: str = ""
    run: int = 0
    worker: str = ""
    kind: JobKind = "analysis"

    @property
    def terminal(self) -> bool:
        """Whether it has ended."""
        return self.status in TERMINAL

    @property
    def work(self) -> Work:
        """The work as it was accepted."""
        return Work(self.id, self.payload, self.model, self.recipe, self.tokens, self.owner, self.request_id, self.kind)


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process. `name` outlives the process, `task` is the Celery task it runs (for revoking it), `warm` the digests of the models in its
    memory, `most_tokens` the most tokens of several inputs in one forward pass (0: one input at a time).
    """

    name: str
    device: str = "cpu"
    task: str = ""
    warm: frozenset[str] = frozenset()
    most_tokens: int = 0
    pid: int = 0
    host: str = ""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker, the time of its last heartbeat, and the ids of the jobs it runs."""

    worker: Worker
    seen: float
    jobs: tuple[str, ...] = ()


class ChunkState(NamedTuple):
    """The progress of a chunk of a study. Times as in Job."""

    id: str
    status: Status
    fraction: float
    stage: str
    detail: str
    tokens: int
    started: float | None
    finished: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """A claim of a job, and the worker that made it."""

    id: str
    run: int
    worker: str


@dataclass(frozen=True, slots=True)
class Limits:
    """The most queued jobs, in all and per owner; None for no limit."""

    total: int | None = None
    per_owner: int | None = None


NO_LIMITS = Limits()


class JobDatabase(Protocol):
    """The durable queue of jobs. Every change is atomic; any number of threads and processes may use the same database.

    A change of a chunk is a change of its study, too. When a study ends, its chunks are cancelled and removed.
    Every method may raise BrokerUnavailable (cluster), or what Database raises (embedded).
    """

    def enqueue(
        self,
        work: Iterable[Work],
        *,
        batch: str | None = None,
        priority: int = 0,
        limits: Limits = Limits(),
    ) -> None:
        """Accept work durably, all of it or none, and grant it to its owners.

        Queued and running jobs are left unchanged; ended ones are restarted. Raises QueueFull if more jobs would be queued than `limits` allow.
        """

    def grant(self, id_: str, owner: str) -> None:
        """Grant an owner a stored analysis, which needs no job."""

    def get(self, id_: str) -> Job | None:
        """Return a job, None if there is none."""

    def get_many(self, ids: Collection[str]) -> dict[str, Job]:
        """Return those of these jobs that exist, by id."""

    def claim(self, worker: Worker) -> list[Job]:
        """Claim the next queued job (see scheduling.py) and others that may share its forward pass; return an empty list if none is queued.

        They are running from now on, with one more attempt and a new `run` each.
        """

    def heartbeat(self, worker: Worker, runs: Collection[int]) -> None:
        """Record that the worker and these of its runs are alive. Any other run of this worker expires: the response to its claim was lost."""

    def deregister(self, name: str) -> None:
        """Remove a worker whose process has ended, and its cancelled runs. Its running jobs are left to be settled."""

    def progress(self, id_: str, run: int, fraction: float, stage: str, detail: str) -> bool:
        """Set the progress of a run (fraction in 0..1); return False if it has been cancelled or reassigned and should stop."""

    def finish(self, id_: str, run: int, status: Status, error: Problem | None = None) -> bool:
        """End a run; return False if it had already ended. The worker releases the job in either case."""

    def requeue(self, id_: str, run: int, detail: str, *, counted: bool = True) -> bool:
        """Queue a running job again, at the head of its owner's queue; return False if the run had ended. `counted`: whether the attempt counts."""

    def cancel(self, id_: str, owner: str | None = None) -> bool:
        """Withdraw an owner's grant of a queued or running job; the job is cancelled with the last one. None cancels it for all owners.

        Return False if the job had ended or the owner had no grant. The last owner keeps its grant, and so can see that the job is cancelled.
        """

    def forget(self, id_: str, owner: str | None = None) -> bool:
        """Withdraw an owner's grant of an ended job; the job is removed with the last one. None removes it for all owners.

        Return True if nothing is left, so that its result may be deleted. Return False if others have a grant, the job has not ended, or nothing existed.
        """

    def expired(self, seconds: float | None = None, name: str | None = None) -> list[Job]:
        """Return the running jobs without a heartbeat for `seconds` (None: all running jobs), of one worker or of all."""

    def unreleased(self, seconds: float) -> list[Run]:
        """Return the runs cancelled more than `seconds` ago that their worker, which is listed, has not released by `finish`."""

    def waiting(self, owner: str | None = None) -> int:
        """Return the number of queued jobs, of one owner or of all."""

    def oldest(self) -> float | None:
        """Return when the oldest queued job was accepted; None if none is queued."""

    def position(self, job: Job) -> int | None:
        """Return how many jobs will be taken before this queued one; None if it is not queued."""

    def newest_version(self) -> int:
        """Return the newest version, 0 in an empty database."""

    def changed_since(self, version: int) -> tuple[int, list[str] | None]:
        """Return the newest version and the ids that changed after `version`; None for the ids if the database was lost since, so anything may have changed."""

    def statuses(self) -> dict[str, int]:
        """Return the number of jobs by status."""

    def page(self, limit: int, before: float, owner: str | None = None, kind: JobKind = "analysis") -> list[Job]:
        """Return the newest jobs of a kind created before a time, newest first; with an owner, only those granted to it."""

    def chunks(self, id_: str) -> list[ChunkState]:
        """Return the chunks of a study that has not ended, in any order."""

    def workers(self) -> list[WorkerState]:
        """Return the workers with a heartbeat in the last minute, by name."""

    def may_read(self, id_: str, owner: str) -> bool:
        """Return whether the owner has a grant of the analysis."""

    def share(self, id_: str, owner: str) -> str:
        """Return the owner's share key of an analysis or study (128 bit, 32 hexadecimal digits): the same one until it is revoked or the grant ends."""

    def unshare(self, id_: str, owner: str) -> bool:
        """Revoke the owner's share key; return False if there was none."""

    def shared(self, key: str) -> str | None:
        """Return the id of the analysis or study that a share key opens."""

    def trim(self, older_than: float = KEEP_SECONDS, most: int = KEEP_JOBS) -> int:
        """Remove jobs that ended more than `older_than` s ago or before the `most` last ones, and grants beyond the `most` newest of each owner.

        Return the number of removed jobs, at most TRIM_JOBS. Results are kept; sending a request again grants its result again.
        """

    def now(self) -> float:
        """Return the time of the database in s since 1970, the only clock that times are compared with."""

    def close(self) -> None:
        """Close connections."""


def running(database: JobDatabase, ids: Collection[str]) -> dict[str, int]:
    """Return the current runs of those of these jobs that are running."""
    return {job.id: job.run for job in database.get_many(ids).values() if job.status == "running"}


def settle(database: JobDatabase, jobs: Iterable[Job], seconds: float) -> None:
    """Requeue jobs whose worker was lost. They fail after ATTEMPTS workers, or once they have run for `seconds`."""
    workers = {job.worker for job in jobs if _settle(database, job, seconds)}
    metrics.count("worker_losses", len(workers))


def _settle(database: JobDatabase, job: Job, seconds: float) -> bool:
    if job.started is not None and database.now() - job.started > seconds:
        return database.finish(job.id, job.run, "failed", timed_out(seconds).problem())
    if job.attempts >= ATTEMPTS:
        lost = WorkerLost(
            f"The worker died {job.attempts} times on this analysis, perhaps for lack of memory. Ask for fewer tokens or layers."
        )
        return database.finish(job.id, job.run, "failed", lost.problem())
    return database.requeue(job.id, job.run, "The worker stopped and was restarted; trying again.")


def outcome(problem: Problem | None) -> tuple[Status, Problem | None]:
    """Return the status of a run that ends with this problem or none, and the problem."""
    if problem is None:
        return "done", None
    return ("cancelled" if problem["code"] == Cancelled.code else "failed"), problem


def timed_out(seconds: float) -> TimedOut:
    """Return the error of a job that has run for longer than that."""
    return TimedOut(f"The analysis took longer than {seconds:g} s and was stopped. Ask for fewer tokens or layers.")


def queue_full(limit: int, *, own: bool = False) -> QueueFull:
    """Return the error of work beyond the limit of the queue, or of one owner (`own`)."""
    whose = "You have too many analyses waiting." if own else "Too many analyses are waiting."
    return QueueFull(f"{whose} Try again in a minute.", limit=limit)


def to_json(worker: Worker) -> str:
    """Return a worker as JSON."""
    return json.dumps({**asdict(worker), "warm": sorted(worker.warm)})


def from_json(text: str) -> Worker:
    """Return the worker of such JSON."""
    values = json.loads(text)
    return Worker(**{**values, "warm": frozenset(values["warm"])})
