"""Job databases: every transition is compare-and-set, and every job ends exactly once, whatever the order of events."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headscope.errors import QueueFull
from headscope.jobs import Job, JobDatabase, Limits, Work, Worker
from tests.contract.job_databases import (
    IDS,
    PROBLEM,
    WORKER,
    Open,
    Place,
    accept,
    claim_all,
    claimed,
    running,
    status,
    the,
    work,
)
from tests.support.extent import extent, mostly_long
from tests.support.forks import forked


def test_a_job_from_queue_to_done(database: JobDatabase) -> None:
    """A job is queued, running and done, with progress and attempts."""
    before = database.now()
    asked = Work(IDS[0], '{"a": "é😀"}', model="m", recipe="r", tokens=7, owner="ann", request_id="q")
    database.enqueue([asked], batch="b", priority=1)
    queued = the(database, IDS[0])
    assert (queued.status, queued.stage, queued.attempts, queued.priority) == ("queued", "queued", 0, 1)
    job = claimed(database)
    assert job.work == asked
    assert (job.batch, job.status, job.attempts, job.worker) == ("b", "running", 1, "one")
    assert the(database, IDS[0]) == job
    assert database.progress(job.id, job.run, 0.5, "forward", "layer 3")
    midway = the(database, IDS[0])
    assert (midway.fraction, midway.stage, midway.detail) == (0.5, "forward", "layer 3")
    assert database.finish(job.id, job.run, "done")
    ended = the(database, job.id)
    assert (ended.status, ended.stage, ended.fraction, ended.terminal, ended.error) == ("done", "done", 1.0, True, None)
    assert before <= ended.created <= ended.started <= ended.finished <= database.now()
    assert queued.version < job.version < midway.version < ended.version == database.versions(IDS)[job.id]


def test_nothing_to_claim(database: JobDatabase) -> None:
    """An empty queue has no job to claim, and a missing job is None."""
    assert database.claim(WORKER) == []
    assert database.get(IDS[0]) is None
    assert database.get_many(IDS) == {}
    assert (
        database.versions(IDS),
        database.oldest(),
        database.waiting(),
        database.statuses(),
        database.page(10, float("inf")),
    ) == (
        {},
        None,
        0,
        {},
        [],
    )


LATE: dict[str, Callable[[JobDatabase, Job], bool]] = {
    "finish": lambda database, job: database.finish(job.id, job.run, "done"),
    "fail": lambda database, job: database.finish(job.id, job.run, "failed", PROBLEM),
    "cancel": lambda database, job: database.cancel(job.id),
    "requeue": lambda database, job: database.requeue(job.id, job.run, "again"),
    "progress": lambda database, job: database.progress(job.id, job.run, 0.9, "forward", ""),
    "held": lambda database, job: bool(database.held(job.worker)),
}
ENDS = ("cancelled", "done", "failed")


@pytest.mark.parametrize(
    ("late", "end"), mostly_long(itertools.product(LATE, ENDS), *zip(LATE, itertools.cycle(ENDS), strict=False))
)
def test_an_ended_job_does_not_change(database: JobDatabase, late: str, end: str) -> None:
    """No late write moves a job out of a terminal state."""
    job = running(database)
    assert database.finish(IDS[0], job.run, end, PROBLEM if end == "failed" else None)
    before = the(database, IDS[0])
    assert not LATE[late](database, job)
    assert the(database, IDS[0]) == before


EARLY = {name: LATE[name] for name in ("finish", "requeue", "progress")}
EARLY["forget"] = lambda database, job: database.forget(job.id)


@pytest.mark.parametrize("early", EARLY.values(), ids=EARLY)
def test_a_queued_job_can_only_be_claimed_or_cancelled(
    database: JobDatabase, early: Callable[[JobDatabase, Job], bool]
) -> None:
    """All other transitions of a queued job are rejected."""
    (before,) = accept(database, 0)
    assert not early(database, before)
    assert the(database, IDS[0]) == before


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_a_run_that_was_given_up_changes_nothing(
    database: JobDatabase, late: Callable[[JobDatabase, Job], bool]
) -> None:
    """A worker whose run expired cannot change the job, which another worker runs, even after it was cancelled and sent again."""
    first = running(database)
    assert database.requeue(IDS[0], first.run, "again")
    second = claimed(database, Worker("two"))
    assert second.run > first.run
    if late in (LATE["cancel"], LATE["held"]):  # these are about the job, not the run
        return
    assert not late(database, first)
    assert the(database, IDS[0]) == second
    assert database.cancel(IDS[0])
    accept(database, 0)
    third = claimed(database, Worker("three"))
    assert third.attempts == 1
    assert not late(database, first)
    assert not late(database, second)
    assert the(database, IDS[0]) == third


@pytest.mark.parametrize("state", ["queued", "running"])
def test_what_is_under_way_is_not_started_twice(database: JobDatabase, state: str) -> None:
    """Enqueueing a queued or running job again changes nothing."""
    accept(database, 0)
    if state == "running":
        claimed(database)
    before = the(database, IDS[0])
    database.enqueue([Work(IDS[0], "second")], batch="b")
    assert the(database, IDS[0]) == before


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
def test_what_has_ended_starts_anew(database: JobDatabase, end: str) -> None:
    """Enqueueing an ended job restarts it with its new parameters."""
    job = running(database, recipe="r", tokens=3, owner="ann")
    database.progress(IDS[0], job.run, 0.5, "forward", "layer 3")
    database.finish(IDS[0], job.run, end, PROBLEM if end == "failed" else None)
    database.enqueue([Work(IDS[0], "new", owner="bob")])
    job = the(database, IDS[0])
    assert (job.status, job.stage, job.detail, job.attempts, job.error, job.fraction) == (
        "queued",
        "queued",
        "",
        0,
        None,
        0.0,
    )
    assert (job.started, job.finished, job.run, job.worker) == (None, None, 0, "")
    assert job.work == Work(IDS[0], "new", owner="bob")
    assert database.statuses() == {"queued": 1}


def test_a_lost_worker_costs_an_attempt(database: JobDatabase) -> None:
    """requeue counts attempts, which detects poison jobs; an attempt that was stopped on purpose does not count."""
    job = running(database)
    assert database.requeue(IDS[0], job.run, "again")
    assert the(database, IDS[0]).detail == "again"
    job = claimed(database)
    assert job.attempts == 2
    assert database.requeue(IDS[0], job.run, "", counted=False)
    assert claimed(database).attempts == 2


def test_what_was_lost_goes_first(database: JobDatabase) -> None:
    """A requeued job is at the head of its owner's queue."""
    job = running(database)
    accept(database, 1, 2)
    database.requeue(job.id, job.run, "again")
    assert claimed(database).id == IDS[0]


def test_everything_is_shared(database: JobDatabase, open_database: Open) -> None:
    """Another process sees all changes."""
    job = running(database)
    database.finish(IDS[0], job.run, "failed", PROBLEM)
    accept(database, 1)
    other = open_database()
    assert [other.get(id_) for id_ in IDS] == [database.get(id_) for id_ in IDS]
    assert other.get_many(IDS) == {id_: the(database, id_) for id_ in IDS[:2]}
    assert the(other, IDS[0]).error == PROBLEM
    assert other.statuses() == {"failed": 1, "queued": 1}


def test_a_job_is_claimed_once(open_database: Open) -> None:
    """With eight concurrent claims, every job is claimed once."""
    open_database().enqueue(work(*range(64)))
    gate = threading.Barrier(8)

    def claim_all(number: int) -> list[Job]:
        database = open_database()
        gate.wait()
        return list(itertools.chain(*iter(lambda: database.claim(Worker(f"w{number}")), [])))

    with ThreadPoolExecutor(8) as threads:
        jobs = list(itertools.chain(*threads.map(claim_all, range(8))))
    assert sorted(job.id for job in jobs) == [f"{number:032x}" for number in range(64)]
    assert len({job.run for job in jobs}) == 64


@pytest.mark.parametrize("place", mostly_long(["sqlite", "postgresql"], "postgresql"), indirect=True)
def test_a_job_is_claimed_once_by_processes(database: JobDatabase, place: Place) -> None:
    """The same with three processes."""
    count = extent(400, 150)
    database.enqueue(work(*range(count)))
    jobs = list(itertools.chain(*forked(claim_all, *((place, f"w{number}") for number in range(3)))))
    assert sorted(id_ for id_, _ in jobs) == [f"{number:032x}" for number in range(count)]
    assert len({run for _, run in jobs}) == count
    assert database.statuses() == {"running": count}


def test_one_end_wins(open_database: Open) -> None:
    """With eight concurrent writers, one ends the job."""
    job = running(open_database())
    gate = threading.Barrier(8)

    def end(number: int) -> bool:
        database = open_database()
        gate.wait()
        return database.cancel(IDS[0]) if number % 2 else database.finish(IDS[0], job.run, "done")

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(end, range(8))) == 1


def test_a_batch_is_accepted_whole_or_not_at_all(database: JobDatabase) -> None:
    """If one entry is invalid, none is accepted."""

    def broken() -> Iterator[Work]:
        yield Work(IDS[0], "{}")
        raise OSError

    with pytest.raises(OSError):
        database.enqueue(broken())
    assert database.get(IDS[0]) is None
    accept(database, 0)
    assert status(database) == "queued"


def test_limits(database: JobDatabase) -> None:
    """Work beyond a limit, in all or of one owner, is rejected as a whole; jobs that are queued or running already do not count."""
    limits = Limits(total=4, per_owner=3)
    database.enqueue(work(0, 1, 2, owner="ann"), limits=limits)
    with pytest.raises(QueueFull) as own:
        database.enqueue(work(3, owner="ann"), limits=limits)
    database.enqueue(work(0, 1, 2, owner="bob"), limits=limits)
    with pytest.raises(QueueFull) as total:
        database.enqueue(work(4, 5, owner="bob"), limits=limits)
    assert (own.value.limit, total.value.limit) == (3, 4)
    assert own.value.detail != total.value.detail
    with pytest.raises(QueueFull, match="Send at most 3 at once"):
        database.enqueue(work(6, 7, 8, 9, owner="eve"), limits=Limits(per_owner=3))
    assert (database.waiting(), database.waiting("ann"), database.waiting("bob")) == (3, 3, 0)
    assert not database.may_read(f"{4:032x}", "bob")
    database.enqueue(work(4, 0, owner="bob"), limits=limits)
    assert (database.waiting(), database.waiting("bob")) == (4, 1)


def test_versions_are_never_used_twice(database: JobDatabase) -> None:
    """The version of a job grows with every change, even after it was removed and accepted again."""
    versions = [job.version for job in accept(database, 0)]
    for _ in range(3):
        job = claimed(database)
        assert database.progress(job.id, job.run, 0.5, "forward", "")
        assert database.finish(job.id, job.run, "done")
        versions.append(database.versions(IDS)[job.id])
        assert database.forget(job.id)
        assert database.versions(IDS) == {}
        versions += [job.version for job in accept(database, 0)]
    assert versions == sorted(set(versions))


def test_pages(database: JobDatabase) -> None:
    """Pages are newest first from any time on, and contain each job once."""
    accept(database, *range(10))
    pages, before = [], float("inf")
    while page := database.page(3, before):
        pages += [job.id for job in page]
        before = page[-1].created
    assert pages == [f"{number:032x}" for number in reversed(range(10))]


def test_trim(database: JobDatabase) -> None:
    """trim removes old jobs and those beyond the limit, but none that is queued or running."""
    accept(database, *range(6))
    jobs = [claimed(database) for _ in range(5)]
    for job in jobs[:4]:
        database.finish(job.id, job.run, "done")
    assert database.trim() == 0
    assert database.trim(most=3) == 1
    assert database.get(IDS[0]) is None
    assert database.statuses() == {"done": 3, "running": 1, "queued": 1}
    ended = the(database, IDS[1]).finished
    assert ended is not None
    while database.now() <= ended:
        time.sleep(0.001)
    assert database.trim(older_than=0.0) == 3
    assert database.statuses() == {"running": 1, "queued": 1}
    assert database.finish(jobs[4].id, jobs[4].run, "done")
    assert [job.id for job in database.page(10, float("inf"))] == [f"{5:032x}", f"{4:032x}"]


def test_chunks_take_no_place_of_ended_jobs(database: JobDatabase) -> None:
    """Those of a running study are removed with it; until then they crowd out no analysis."""
    accept(database, 0)
    analysis = claimed(database)
    database.finish(analysis.id, analysis.run, "done")
    chunks = [Work(f"{IDS[1]}.{number}.x", "{}", kind="chunk") for number in range(3)]
    database.enqueue([*chunks, Work(IDS[1], "{}", kind="study")], batch=IDS[1], priority=1)
    for _ in chunks:
        job = claimed(database)
        database.finish(job.id, job.run, "done")
    assert database.trim(most=1) == 0
    assert the(database, IDS[0]).status == "done"
