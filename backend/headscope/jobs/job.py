"""What a job is, who does it, and what every record of jobs promises: the nouns of this room."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from ..errors import Cancelled, QueueFull, TimedOut, WorkerLost

Status = Literal["queued", "running", "done", "failed", "cancelled"]
TERMINAL: frozenset[str] = frozenset({"done", "failed", "cancelled"})
# The owner of everything on a server without tokens.
LOCAL = "local"
# A job that has lost this many workers fails.
ATTEMPTS = 3
# Ended jobs are kept this long (s), and this many of them; as many grants are kept of each owner.
KEEP_SECONDS = 7 * 24 * 3600.0
KEEP_JOBS = 10_000
# Most jobs that one call of `trim` drops, so that nobody waits for it.
TRIM_JOBS = 1_000
# A worker not heard of for this long (s) is no longer listed.
GONE_SECONDS = 60.0

Problem = dict[str, Any]
# A study is done in chunks, its parts: jobs of its batch.
JobKind = Literal["analysis", "study", "chunk"]


@dataclass(frozen=True, slots=True)
class Work:
    """What is accepted. `model` is the digest of its files; inputs of one `recipe` (a digest of all of the request but its input) and one
    number of `tokens` may share a forward pass. An empty recipe or None tokens: it runs alone. Nobody is granted a chunk: it belongs to the
    study whose id is its batch.
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
    """One piece of accepted work. Times are seconds since 1970 on the record's clock.

    `version` grows with every change, over all jobs. `run` names one claim: no two claims of any jobs have the same, so a worker that
    was given up can change nothing any more. `attempts` counts the claims since the job was accepted; `worker` made the latest.
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
        """Whether nothing more will happen to it."""
        return self.status in TERMINAL

    @property
    def work(self) -> Work:
        """What was accepted."""
        return Work(self.id, self.payload, self.model, self.recipe, self.tokens, self.owner, self.request_id, self.kind)


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process that takes jobs. `name` outlives the process, `task` is the task it runs now (for killing it), `warm` the digests of the
    models it has in memory, `most_tokens` how many tokens it takes in one pass, over several inputs (0: one input at a time).
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
    """What the record knows of a worker: when it was last heard of, and the ids of the jobs it holds."""

    worker: Worker
    seen: float
    jobs: tuple[str, ...] = ()


class ChunkState(NamedTuple):
    """A chunk of a study, as far as progress goes. Times as those of a job."""

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
    """One claim of a job, and the worker that made it."""

    id: str
    run: int
    worker: str


class ReportId(NamedTuple):
    """Which of a speaker's additions to the record this is, in the order in which it says them: each is added once, however often it is said."""

    client_id: str
    number: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How many jobs may wait, in all and of one owner; None: any number."""

    total: int | None = None
    per_owner: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations under one name and labels: how many fell at or below each of the bounds `tally.BUCKETS` and above the one before (the last: above all), and their sum."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    counts: tuple[int, ...] = ()
    total: float = 0.0


class JobDatabase(Protocol):
    """The durable record of jobs. Every change is atomic and compare-and-set; any number of threads and processes may use one record.

    A change of a chunk is a change of its study, too. When a study ends, its chunks are cancelled and dropped.
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
        """Accept work, durably, all of it or none. Its owners are granted it.

        What is queued or running already stays as it is; what has ended starts anew. Raises QueueFull where more would wait than `limits` allow.
        """

    def grant(self, id_: str, owner: str) -> None:
        """Let an owner read an analysis that needs no job, for it is stored."""

    def get(self, id_: str) -> Job | None:
        """The job of that id."""

    def get_many(self, ids: Collection[str]) -> dict[str, Job]:
        """The jobs of those ids that there are, by id."""

    def claim(self, worker: Worker) -> list[Job]:
        """Take the next queued job (see order.py), and with it others that may share its forward pass; empty if nothing waits.

        They are running now, one attempt more, under a new `run` each.
        """

    def heartbeat(self, worker: Worker, runs: Collection[int]) -> None:
        """The worker lives, and so do these runs of its. One that it was given but knows nothing of, the answer being lost, is left to be settled."""

    def deregister(self, name: str) -> None:
        """The worker's process has ended: it is no longer listed, and holds no cancelled runs. What it was running stays to be settled."""

    def progress(self, id_: str, run: int, fraction: float, stage: str, detail: str) -> bool:
        """Note how far a run is (fraction in 0..1); False if it is no longer wanted, and should stop."""

    def finish(self, id_: str, run: int, status: Status, error: Problem | None = None) -> bool:
        """End a run; False if it had ended already. Either way its worker has let go of it."""

    def requeue(self, id_: str, run: int, detail: str, *, counted: bool = True) -> bool:
        """Queue a running job again, first of its owner's; False if the run had ended. `counted`: whether the attempt counts."""

    def cancel(self, id_: str, owner: str | None = None) -> bool:
        """Withdraw an owner's wish for a queued or running job; it is cancelled once nobody wants it. None: cancelled for all.

        False if it had ended, or the owner had no wish. The last one to withdraw keeps the grant, and so can see that it is cancelled.
        """

    def forget(self, id_: str, owner: str | None = None) -> bool:
        """Withdraw an owner's grant of an ended job; with the last one the job is removed. None: removed for all.

        True if nothing of it is left, so that its result may go, too. False if others have a grant, it is under way, or there was nothing.
        """

    def expired(self, seconds: float | None = None, name: str | None = None) -> list[Job]:
        """Running jobs whose worker was last heard of more than `seconds` ago, or (None) all those of the worker `name`, or of all workers."""

    def unreleased(self, seconds: float) -> list[Run]:
        """Runs cancelled more than `seconds` ago that their worker, which is listed, has not let go of by `finish`."""

    def waiting(self, owner: str | None = None) -> int:
        """Number of queued jobs, of one owner or of all."""

    def oldest(self) -> float | None:
        """When the longest waiting queued job was accepted; None if none waits."""

    def position(self, job: Job) -> int | None:
        """How many jobs are taken before this queued one, by the order of turns; None if it is not queued."""

    def newest_version(self) -> int:
        """The newest version, 0 in an empty record."""

    def changed_since(self, version: int) -> tuple[int, list[str] | None]:
        """The newest version, and the ids that changed after `version`; None for the ids if the record was lost since and everything may have changed."""

    def statuses(self) -> dict[str, int]:
        """Number of jobs by status."""

    def page(self, limit: int, before: float, owner: str | None = None, kind: JobKind = "analysis") -> list[Job]:
        """The newest jobs of a kind created before a time, newest first; of one owner, those granted to it."""

    def chunks(self, id_: str) -> list[ChunkState]:
        """The chunks of a study that has not ended, in no order."""

    def workers(self) -> list[WorkerState]:
        """Workers heard of in the last minute, by name."""

    def may_read(self, id_: str, owner: str) -> bool:
        """Whether the owner was granted the analysis."""

    def share(self, id_: str, owner: str) -> str:
        """The key with which anybody may read the analysis or study (128 bit, 32 hexadecimal digits): the same each time, until the owner takes it back or loses its grant."""

    def unshare(self, id_: str, owner: str) -> bool:
        """Take the owner's key back; False if there was none."""

    def shared(self, key: str) -> str | None:
        """The id of the analysis or study that the key opens."""

    def count(self, name: str, number: int = 1, *, report: ReportId | None = None) -> None:
        """Add to a counter that outlives the process which counts. `saying` is for whoever may have to say it again, having heard no answer."""

    def counters(self) -> dict[str, int]:
        """All counters."""

    def observe(self, name: str, labels: Mapping[str, str], value: float, *, report: ReportId | None = None) -> None:
        """Add an observation to a histogram, as `count` does to a counter. The caller bounds how many values a label has."""

    def histograms(self) -> list[Histogram]:
        """All histograms."""

    def trim(self, older_than: float = KEEP_SECONDS, most: int = KEEP_JOBS) -> int:
        """Drop jobs that ended more than `older_than` s ago or are not among the `most` last ended, and grants beyond the `most` newest of each owner.

        Results are not touched; whoever sends a request again is granted its result again. At most TRIM_JOBS at a time; how many were dropped.
        """

    def now(self) -> float:
        """The record's clock, s since 1970: the only one that times are compared with."""

    def close(self) -> None:
        """Let go of connections."""


def running(database: JobDatabase, ids: Collection[str]) -> dict[str, int]:
    """Return the current runs of those of these jobs that are running."""
    return {job.id: job.run for job in database.get_many(ids).values() if job.status == "running"}


def settle(database: JobDatabase, jobs: Iterable[Job], seconds: float) -> None:
    """What becomes of jobs whose worker was lost: tried again, or failed after ATTEMPTS workers or when they have run for `seconds`."""
    workers = {job.worker for job in jobs if _settle(database, job, seconds)}
    if workers:
        database.count("worker_losses", len(workers))


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
    """The status in which a run ends that had this problem, or none; and the problem."""
    if problem is None:
        return "done", None
    return ("cancelled" if problem["code"] == Cancelled.code else "failed"), problem


def timed_out(seconds: float) -> TimedOut:
    """The error of a job that has run for longer than that."""
    return TimedOut(f"The analysis took longer than {seconds:g} s and was stopped. Ask for fewer tokens or layers.")


def queue_full(limit: int, *, own: bool = False) -> QueueFull:
    """The error of work that does not fit: into the queue, or into what one owner may have in it."""
    whose = "You have too many analyses waiting." if own else "Too many analyses are waiting."
    return QueueFull(f"{whose} Try again in a minute.", limit=limit)


def packed(worker: Worker) -> str:
    """A claimant as JSON."""
    return json.dumps({**asdict(worker), "warm": sorted(worker.warm)})


def unpacked(text: str) -> Worker:
    """The claimant of that JSON."""
    values = json.loads(text)
    return Worker(**{**values, "warm": frozenset(values["warm"])})
