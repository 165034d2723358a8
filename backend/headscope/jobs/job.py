"""Jobs and workers, and the rules of how a job ends."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from ..errors import Cancelled, QueueFull, TimedOut

Status = Literal["queued", "running", "done", "failed", "cancelled"]
ACTIVE: frozenset[str] = frozenset({"queued", "running"})
TERMINAL: frozenset[str] = frozenset({"done", "failed", "cancelled"})
# The owner of every job on a server without tokens.
LOCAL = "local"
# Most inputs of one forward pass: it bounds what a lost worker costs and how long the next owner waits.
LARGEST_GROUP = 64

Problem = dict[str, Any]
# A study is computed in chunks, which are jobs of its batch, as the effects on an analysis are jobs of its. Head scores are about a model.
# A download puts a model into the hub's cache and has no result.
JobKind = Literal["analysis", "effect", "head-scores", "study", "chunk", "download"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Work):
    """Accepted work. Times are seconds since 1970 on the clock of the database.

    `version` grows with every change of the job, and `run` with every claim, even if the job is removed and accepted again in between:
    a worker whose claim has expired cannot change the job. `attempts` counts the claims since the job was accepted; `worker` made the latest.
    `task` is the unit in which jobs are handed to workers: those of one task may share a forward pass. `trace` is the span of the request, as in the header
    `traceparent`; empty without traces.
    `owner` is the one whose turn it takes; others may want it too.
    """

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
    run: int = 0
    worker: str = ""
    task: str = ""
    trace: str = ""

    @property
    def terminal(self) -> bool:
        """Whether it has ended."""
        return self.status in TERMINAL

    @property
    def work(self) -> Work:
        """The work as it was accepted."""
        return Work(**{field.name: getattr(self, field.name) for field in fields(Work)})


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process. `name` outlives the process, `warm` are the digests of the models in its memory, `models` those it serves alone (empty: all),
    `most_tokens` the most tokens of several inputs in one forward pass (0: one input at a time), `seen` the time of the last heartbeat, if it was read.
    """

    name: str
    device: str = "cpu"
    warm: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    most_tokens: int = 0
    pid: int = 0
    host: str = ""
    seen: float = 0.0


# Workers as JSON, in the database.
WORKERS = TypeAdapter(Worker)


class ChunkState(NamedTuple):
    """What the progress of a study is computed from: the state of one of its chunks, as in Job."""

    id: str
    status: Status
    fraction: float
    stage: str
    detail: str
    tokens: int | None
    started: float | None
    finished: float | None


class Run(NamedTuple):
    """A claim of a job."""

    id: str
    run: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The most queued jobs, in all and per owner; None for no limit. Requests that arrive at the same moment may together exceed them a little."""

    total: int | None = None
    per_owner: int | None = None


NO_LIMITS = Limits()


class End(NamedTuple):
    """How a run of a job ends."""

    id: str
    run: int
    status: Status
    error: Problem | None = None


def outcome(job: Job, problem: Problem | None) -> End:
    """Return the end of a job's run with this problem or none."""
    failed: Status = "cancelled" if problem and problem["code"] == Cancelled.code else "failed"
    return End(job.id, job.run, failed if problem else "done", problem)


def timed_out(seconds: float, kind: JobKind = "analysis") -> TimedOut:
    """Return the error of a job that has run for longer than that."""
    if kind == "download":
        return TimedOut(
            f"The download took longer than {seconds:g} s and was stopped. Start it again; files that are complete are kept."
        )
    return TimedOut(f"The analysis took longer than {seconds:g} s and was stopped. Ask for fewer tokens or layers.")


def queue_full(limit: int, asked: int, *, own: bool = False) -> QueueFull:
    """Return the error of so many jobs beyond the limit of the queue, or of one owner (`own`)."""
    if asked > limit:
        return QueueFull(
            f"These are {asked} analyses, and {limit} may wait. Send at most {limit} at once.", limit=limit
        )
    whose = "You have too many analyses waiting." if own else "Too many analyses are waiting."
    return QueueFull(f"{whose} Try again in a minute.", limit=limit)
