"""The durable queue of jobs.

Owners take turns: the one served least recently is next, with its first job. So the single request of one user waits for one task of every other user
at most, however many they have queued. Within an owner's queue single requests come before batches, then the order of arrival decides.

Every change is atomic, and any number of threads and processes may use the same database. A worker changes a job only with the number of its run: once the
job was cancelled, or given to another worker, the number is another one. Transactions lock a study before its chunks, and rows of one table in order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import sqlalchemy as sa

from ..database import NOW, Database
from ..database.tables import grants, jobs, owners, workers
from ..errors import WorkerLost
from . import metrics, tracing
from .announcements import Announce
from .grants import owners_of, withdraw
from .job import (
    ACTIVE,
    LARGEST_GROUP,
    NO_LIMITS,
    TERMINAL,
    WORKERS,
    End,
    Job,
    Limits,
    Problem,
    Run,
    Status,
    Work,
    Worker,
    queue_full,
    timed_out,
)
from .queries import COLUMNS, FIRST, ORDER, QUEUED, RUNNING, next_turn, order_of, to_job
from .sending import TaskSending

# A job that has lost this many workers fails.
ATTEMPTS = 3
# Ended jobs are kept for this long (s), and at most this many; the same number of grants is kept per owner.
KEEP_SECONDS = 7 * 24 * 3600.0
KEEP_JOBS = 10_000
# Most jobs that one call of `trim` removes, so that it stays short.
TRIM_JOBS = 1_000
# Another name of the table, for chunks beside their study. Only the ids of chunks contain a dot.
CHUNKS = jobs.alias("chunks")
# Two jobs that are accepted at once differ by this much in time (s), and by 1 in version.
STEP_SECONDS = 1e-6


class JobDatabase(TaskSending):
    """The queue, its workers, and the grants of its owners. When a study ends, its chunks are cancelled and removed; their changes are its changes, too.

    `announce` is called with the ids of jobs, or of the studies of chunks, after workers have changed them.
    """

    def __init__(self, database: Database, announce: Announce = lambda _: None) -> None:
        super().__init__(database)
        self._announce = announce

    def enqueue(
        self,
        work: Iterable[Work],
        *,
        batch: str | None = None,
        priority: int = 0,
        limits: Limits = NO_LIMITS,
        check: Callable[[sa.Connection], None] = lambda _: None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Accept work durably, all of it or none, and grant it to its owners. Alike inputs of one owner become one task.

        Queued and running jobs are left unchanged; ended ones are restarted. `wake` is called when workers can claim it, perhaps before it is durable.
        Raises QueueFull if more jobs would be queued than `limits` allow, and what `check` raises in the transaction.
        """
        asked = list(work)
        with self._database.change("promise", wake) as connection:
            names = self._accept(connection, asked, batch, priority)
            check(connection)
            if names:
                self._check(connection, limits, names, len({one.id for one in asked}))
            pairs = {(one.owner, one.id) for one in asked if one.kind != "chunk"}
            if pairs:
                self._grant(connection, pairs)

    def _accept(self, connection: sa.Connection, asked: list[Work], batch: str | None, priority: int) -> set[str]:
        """Insert jobs that are neither queued nor running, and return their owners. Until the transaction ends, none of the jobs can be cancelled."""
        left, names = list({one.id: one for one in reversed(asked)}.values())[::-1], set[str]()
        while left:  # a second time only for what was cancelled or removed in between
            active = _select(connection, {one.id for one in left}, ACTIVE)
            self._advance(connection, [one for one in left if one.id in active], priority)
            fresh = [one for one in left if one.id not in active]
            if fresh:
                _remove_ended(connection, {one.id for one in fresh})
                self._insert(connection, fresh, batch, priority)
                names |= {one.owner for one in fresh}
            held = _hold(connection, {one.id for one in left})
            left = [one for one in left if one.id not in held]
            ended = _select(connection, {one.id for one in left}, TERMINAL - {"cancelled"}) if left else ()
            left = [one for one in left if one.id not in ended]
        return names

    def _advance(self, connection: sa.Connection, asked: Iterable[Work], priority: int) -> None:
        """Move what waits in a batch, and is asked for singly, to the queue of its new owner, as a task of its own."""
        task = f".{int(self._database.now(connection) / STEP_SECONDS)}"
        for one in sorted(asked, key=lambda work: work.id):
            later = jobs.update().where(jobs.c.id == one.id, QUEUED, jobs.c.priority > priority)
            own = {"owner": one.owner, "priority": priority, "task": one.id + task, "sent": None}
            if connection.execute(later.values(own)).rowcount:
                self._join(connection, one.owner)

    def _insert(self, connection: sa.Connection, fresh: list[Work], batch: str | None, priority: int) -> None:
        now, rows, groups = self._database.now(connection), [], dict[Any, list[str]]()
        all_ = {"batch": batch, "priority": priority, "trace": tracing.current()}
        for place, one in enumerate(fresh):
            created = now + place * STEP_SECONDS
            version = int(created / STEP_SECONDS)
            group = groups.setdefault((one.owner, one.recipe, one.tokens) if one.recipe and one.tokens else one.id, [])
            group.append(group[-1] if len(group) % LARGEST_GROUP else f"{one.id}.{version}")
            rows.append(asdict(one) | all_ | {"task": group[-1], "created": created, "version": version})
        rows.sort(key=lambda row: row["id"])
        connection.execute(self._database.insert(jobs).on_conflict_do_nothing(), rows)
        for owner in sorted({one.owner for one in fresh}):
            self._join(connection, owner)

    def _join(self, connection: sa.Connection, owner: str) -> None:
        connection.execute(self._database.insert(owners).values(owner=owner).on_conflict_do_nothing())

    def _check(self, connection: sa.Connection, limits: Limits, names: Collection[str], asked: int) -> None:
        rows: list[Any] = list(connection.execute(LENGTHS)) if limits != NO_LIMITS else []
        lengths: dict[str, int] = dict(rows)
        if limits.total is not None and sum(lengths.values()) > limits.total:
            raise queue_full(limits.total, asked)
        if limits.per_owner is not None and max(lengths.get(name, 0) for name in names) > limits.per_owner:
            raise queue_full(limits.per_owner, asked, own=True)

    def claim(
        self, worker: Worker, ends: Sequence[End] = (), *, task: str | None = None, downloads: bool | None = None
    ) -> list[Job]:
        """Claim queued jobs of a task (None: the next one), as many as the worker takes at once; return an empty list if none is queued.

        They are running from now on, with one more attempt and a new `run` each, as long as the worker sends heartbeats.
        In the same transaction, earlier runs of the worker end: all of this happens, or nothing.
        """
        if any("." in end.id for end in ends):  # the studies of chunks must be locked first
            self.end(ends)
            ends = ()
        which = {"task": task} if task is not None else {}
        head = _head(task is not None, downloads)
        if task is None and not ends and not self._rows(head):  # looking without a change
            return []
        with self._database.change() as connection:
            for end in ends:
                self._end(connection, end)
            if task is None:
                self._database.take_turn(connection, "headscope queue")
            first = connection.execute(head, which).first()
            taken = self._take(connection, worker, first) if first is not None else []
            if first is not None and task is None:
                self._serve(connection, first.owner)
        self._tell([*(end.id for end in ends), *(job.id for job in taken)])
        return taken

    def has_queued(self, *, downloads: bool) -> bool:
        """Return whether downloads are queued, or other jobs."""
        return bool(self._rows(_head(False, downloads)))

    def _tell(self, ids: Collection[str]) -> None:
        """Announce changes. A change of a chunk is one of its study."""
        if ids:
            self._announce({id_.partition(".")[0] for id_ in ids})

    def _take(self, connection: sa.Connection, worker: Worker, first: Any) -> list[Job]:
        most = max(worker.most_tokens // first.tokens, 1) if first.tokens else 1
        if first.kind == "chunk":
            connection.execute(_change(jobs.c.id == first.batch))
        ids = [first.id]
        if most > 1:  # another worker may be claiming the rest of the task
            ids = list(connection.execute(GROUP, {"task": first.task, "most": most}).scalars())
        rows = connection.execute(BEGIN, {"these": ids, "by": worker.name}).mappings()
        return sorted(map(to_job, rows), key=order_of)

    def heartbeat(self, worker: Worker, held: Collection[Run]) -> set[Run]:
        """Record that the worker is alive; return those of the runs it holds that it should stop: they were cancelled or reassigned.

        Any other of its jobs is requeued: the response to its claim was lost.
        """
        state = {"state": WORKERS.dump_json(worker).decode(), "seen": NOW}
        statement = self._database.insert(workers).values(name=worker.name, **state)
        with self._database.change("report") as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=state))
        mine = {Run(job.id, job.run): job for job in self.held(worker.name)}
        unknown = [job for run, job in mine.items() if run not in held]
        self._release(unknown, "Queued again: its worker was disconnected.")
        return set(held) - mine.keys()

    def take_over(self, name: str, seconds: float) -> None:
        """Settle the jobs of a worker whose process died on them, and deregister it."""
        self.settle(self.held(name), seconds)
        self._deregister(name)

    def release(self, name: str) -> None:
        """Requeue the jobs of a worker that was stopped, and deregister it. They did not cause it, so the attempts do not count."""
        self._release(self.held(name), "The worker was stopped; another one starts again.")
        self._deregister(name)

    def _deregister(self, name: str) -> None:
        with self._database.change() as connection:
            connection.execute(workers.delete().where(workers.c.name == name))

    def _release(self, found: Iterable[Job], detail: str) -> None:
        for job in found:
            self.requeue(job.id, job.run, detail, counted=False)

    def progress(self, id_: str, run: int, fraction: float, stage: str, detail: str) -> bool:
        """Set the progress of a run (fraction in 0..1); return False if it has been cancelled or reassigned and should stop."""
        values = {"fraction": fraction, "stage": stage, "detail": detail, "version": jobs.c.version + 1}
        with self._database.change("report") as connection:
            changed = _change_run(connection, id_, run, **values) is not None
        self._tell([id_])
        return changed

    def finish(self, id_: str, run: int, status: Status, error: Problem | None = None) -> bool:
        """End a run; return False if it had already ended."""
        return self.end([End(id_, run, status, error)])

    def end(self, ends: Iterable[End]) -> bool:
        """End runs in one transaction; return False if one had already ended."""
        ordered = sorted(ends, key=lambda end: end.id)
        with self._database.change() as connection:
            ended = [self._end(connection, end) for end in ordered]
        self._tell([end.id for end in ordered])
        return all(ended)

    def _end(self, connection: sa.Connection, end: End) -> bool:
        _lock_study(connection, end.id, end.run)
        values = {"result": end.status, "problem": json.dumps(end.error) if end.error else None}
        kind = connection.execute(END, {"of": end.id, "claim": end.run, **values}).scalar()
        if kind == "study":
            self._remove_chunks(connection, end.id)
        return kind is not None

    def requeue(self, id_: str, run: int, detail: str, *, counted: bool = True) -> bool:
        """Queue a running job again at its place, as a task of its own; return False if the run had ended. `counted`: whether the attempt counts."""
        again = {"status": "queued", "stage": "queued", "fraction": 0.0, "detail": detail, "sent": None}
        with self._database.change() as connection:
            attempts = jobs.c.attempts if counted else jobs.c.attempts - 1
            return _change_run(connection, id_, run, task=f"{id_}.{run}", attempts=attempts, **again) is not None

    def cancel(self, id_: str, owner: str | None = None) -> bool:
        """Withdraw an owner's grant of a queued or running job; the job is cancelled with the last one. None cancels it for all owners.

        Return False if the job had ended or the owner had no grant. The last owner keeps its grant, and so can see that the job is cancelled.
        """
        with self._database.change("promise") as connection:
            status = _lock(connection, id_)
            granted = owners_of(connection, id_)
            if status not in ACTIVE or (owner is not None and owner not in granted):
                return False
            others = [other for other in granted if other != owner]
            if owner is not None and others:
                withdraw(connection, {(owner, id_)})
                self._transfer(connection, id_, owner, others[0])
                return True
            connection.execute(_change(jobs.c.id == id_, status="cancelled", stage="cancelled", finished=NOW))
            self._remove_chunks(connection, id_)
            return True

    def forget(self, id_: str, owner: str | None = None) -> bool:
        """Withdraw an owner's grant of an ended job; the job is removed with the last one. None removes it for all owners.

        Return True if nothing is left, so that its result may be deleted. Return False if others have a grant, the job has not ended, or nothing existed.
        """
        with self._database.change("promise") as connection:
            if _lock(connection, id_) in ACTIVE:
                return False
            granted = owners_of(connection, id_)
            gone = withdraw(connection, {(name, id_) for name in granted if owner in (None, name)})
            others = [other for other in granted if owner not in (None, other)]
            if owner is not None and (not gone or others):
                if gone:
                    self._transfer(connection, id_, owner, others[0])
                return False
            gone += connection.execute(jobs.delete().where(jobs.c.id == id_)).rowcount
            return gone > 0

    def _transfer(self, connection: sa.Connection, id_: str, owner: str, heir: str) -> None:
        """Transfer a job whose owner withdrew, with its chunks, to another owner with a grant, at the other owner's turn."""
        self._join(connection, heir)
        chunks = (jobs.c.batch == id_) & (jobs.c.kind == "chunk")
        mine = IN_ORDER.where((jobs.c.id == id_) | chunks, jobs.c.owner == owner).with_for_update()
        connection.execute(jobs.update().where(jobs.c.id.in_(mine)).values(owner=heir))

    def _remove_chunks(self, connection: sa.Connection, id_: str) -> None:
        """Remove the chunks of a study that has ended: those that run are cancelled so."""
        connection.execute(jobs.delete().where(jobs.c.batch == id_, jobs.c.kind == "chunk"))

    def settle(self, lost: Iterable[Job], seconds: float) -> None:
        """Requeue jobs whose worker was lost. They fail after ATTEMPTS workers, or once they have run for `seconds`."""
        names = {job.worker for job in lost if self._settle(job, seconds)}
        if names:
            metrics.add("worker_losses", len(names))

    def _settle(self, job: Job, seconds: float) -> bool:
        if job.started is not None and self.now() - job.started > seconds:
            return self.finish(job.id, job.run, "failed", timed_out(seconds, job.kind).problem())
        if job.attempts >= ATTEMPTS:
            error = WorkerLost(
                f"The worker died {job.attempts} times on this analysis, perhaps for lack of memory. Ask for fewer tokens or layers."
            )
            return self.finish(job.id, job.run, "failed", error.problem())
        return self.requeue(job.id, job.run, "The worker stopped and was restarted; trying again.")

    def trim(self, older_than: float = KEEP_SECONDS, most: int = KEEP_JOBS) -> int:
        """Remove jobs that ended more than `older_than` s ago or before the `most` last ones, and grants beyond the `most` newest of each owner.

        Return the number of removed jobs, at most TRIM_JOBS. Results are kept; sending a request again grants its result again.
        """
        place = sa.func.row_number().over(order_by=jobs.c.finished.desc()).label("place")
        alone = (jobs.c.status.in_(TERMINAL), jobs.c.kind != "chunk")  # chunks are removed with their study
        ended = sa.select(jobs.c.id, jobs.c.finished, place).where(*alone).subquery()
        place = (
            sa.func.row_number().over(partition_by=grants.c.owner, order_by=grants.c.requested.desc()).label("place")
        )
        granted = sa.select(grants.c.owner, grants.c.id, place).subquery()
        with self._database.change() as connection:
            before = NOW - older_than
            old = sa.select(ended.c.id).where((ended.c.finished < before) | (ended.c.place > most))
            removed = connection.execute(
                jobs.delete().where(jobs.c.id.in_(old.order_by(ended.c.finished).limit(TRIM_JOBS)))
            )
            surplus = sa.select(granted.c.owner, granted.c.id).where(granted.c.place > most).limit(TRIM_JOBS)
            withdraw(connection, [(owner, id_) for owner, id_ in connection.execute(surplus)])
            return removed.rowcount


@cache
def _head(of_task: bool, downloads: bool | None) -> sa.Select[Any]:
    """Return the query for the next job: of the task `task`, or of the owner whose turn it is."""
    which = QUEUED if downloads is None else QUEUED & ((jobs.c.kind == "download") == downloads)
    return FIRST.where(which, jobs.c.task == sa.bindparam("task")) if of_task else next_turn(which)


def _change(*conditions: sa.ColumnElement[bool], **values: Any) -> sa.Update:
    """Return the statement that changes jobs. The crash of a database may undo reports: the version is beyond them, because they add one only."""
    return jobs.update().where(*conditions).values({"version": _next(jobs.c.version), **values})


def _next(column: sa.Column[int]) -> sa.ColumnElement[int]:
    """Return a larger number, also than those of jobs of the same id that were removed: the time in STEP_SECONDS."""
    stamp = sa.cast(NOW / STEP_SECONDS, sa.BigInteger)
    return sa.case((column + 1 > stamp, column + 1), else_=stamp)


def _change_run(connection: sa.Connection, id_: str, run: int, **values: Any) -> str | None:
    """Change a job if that run is its current one, and return its kind, else None."""
    _lock_study(connection, id_, run)
    changed = _change(jobs.c.id == id_, jobs.c.run == run, RUNNING, **values)
    kind: str | None = connection.execute(changed.returning(jobs.c.kind)).scalar()
    return kind


def _lock_study(connection: sa.Connection, id_: str, run: int) -> None:
    """Lock, and change, the study of a chunk that is about to change."""
    if "." in id_:
        mine = (CHUNKS.c.id == id_, CHUNKS.c.run == run, CHUNKS.c.status == "running", CHUNKS.c.kind == "chunk")
        connection.execute(_change(jobs.c.id == sa.select(CHUNKS.c.batch).where(*mine).scalar_subquery()))


def _select(connection: sa.Connection, ids: set[str], status: Collection[str]) -> set[str]:
    return set(connection.execute(IN_ORDER.where(jobs.c.id.in_(ids), jobs.c.status.in_(status))).scalars())


def _remove_ended(connection: sa.Connection, ids: set[str]) -> None:
    ended = IN_ORDER.where(jobs.c.id.in_(ids), jobs.c.status.in_(TERMINAL)).with_for_update()
    connection.execute(jobs.delete().where(jobs.c.id.in_(ended)))


def _hold(connection: sa.Connection, ids: set[str]) -> set[str]:
    """Lock those of these jobs that are queued or running against being cancelled or removed; return them.

    Workers do not wait for this lock: it lets them change a job and end it. It is taken last, because `_remove_ended` waits for it.
    """
    active = IN_ORDER.where(jobs.c.id.in_(ids), jobs.c.status.in_(ACTIVE))
    return set(connection.execute(active.with_for_update(read=True, key_share=True)).scalars())


def _lock(connection: sa.Connection, id_: str) -> str | None:
    """Lock a job against other transactions; return its status, None if there is none."""
    found: str | None = connection.execute(sa.select(jobs.c.status).where(jobs.c.id == id_).with_for_update()).scalar()
    return found


# The statements of every request and run, built once.
IN_ORDER = sa.select(jobs.c.id).order_by(jobs.c.kind == "chunk", jobs.c.id)  # studies before chunks
LENGTHS = sa.select(jobs.c.owner, sa.func.count()).where(QUEUED).group_by(jobs.c.owner)
GROUP = sa.select(jobs.c.id).where(jobs.c.task == sa.bindparam("task"), QUEUED).order_by(*ORDER)
GROUP = GROUP.limit(sa.bindparam("most")).with_for_update(skip_locked=True)
BEGIN = _change(
    jobs.c.id.in_(sa.bindparam("these", expanding=True)),
    QUEUED,
    status="running",
    stage="loading",
    started=NOW,
    worker=sa.bindparam("by"),
    run=_next(jobs.c.run),
    attempts=jobs.c.attempts + 1,
).returning(*COLUMNS)
RESULT = sa.bindparam("result", type_=sa.Text())
END = _change(
    jobs.c.id == sa.bindparam("of"),
    jobs.c.run == sa.bindparam("claim", type_=sa.BigInteger()),
    RUNNING,
    status=RESULT,
    stage=RESULT,
    error=sa.bindparam("problem", type_=sa.Text()),
    fraction=sa.case((RESULT == "done", 1.0), else_=jobs.c.fraction),
    finished=NOW,
).returning(jobs.c.kind)
