"""Jobs of workers that die, hang or stop are settled exactly once."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from headscope.jobs import Job, JobDatabase, Problem, Worker, worker_process
from headscope.jobs.job import Run
from headscope.jobs.worker_process import WorkerProcess
from tests.contract.job_databases import IDS, PROBLEM, Open, accept, claimed, running, status, the, work
from tests.support.metrics import counted
from tests.support.server import eventually

ONE, TWO = Worker("one", device="cuda:0", warm=frozenset({"m"}), pid=7, host="h"), Worker("two")
LONG = 900.0


def test_a_worker_is_known_while_it_is_heard_of(database: JobDatabase) -> None:
    """A worker is listed with its state until it deregisters."""
    assert database.workers() == []
    database.heartbeat(TWO, [])
    database.heartbeat(ONE, [])
    job = running(database, worker=ONE)
    listed = database.workers()
    assert [replace(worker, seen=0.0) for worker in listed] == [ONE, TWO]
    assert 0 < listed[0].seen <= database.now()
    assert (database.held("one"), database.held("two")) == ([job], [])
    database.finish(job.id, job.run, "done")
    database.release("two")
    assert [worker.name for worker in database.workers()] == ["one"]
    assert database.held("one") == []


def test_workers_without_heartbeat_are_lost(database: JobDatabase) -> None:
    """A worker is silent without heartbeats, whatever it does, and so is one that is not registered but has run jobs for that long."""
    first, second = running(database, 0, ONE), running(database, 1, TWO)
    assert database.silent(60) == []
    assert (database.held("one"), database.held("two")) == ([first], [second])
    eventually(lambda: database.silent(0.0) == ["one", "two"], "workers that have sent no heartbeat")
    database.heartbeat(Worker("idle"), [])

    def only(worker: Worker, run: Run, lost: str) -> None:
        """Send heartbeats of one worker, and check that only others are lost."""
        since = database.now()

        def is_lost() -> bool:
            assert database.heartbeat(worker, [run]) == set()
            return database.silent(database.now() - since) == ["idle", lost]

        eventually(is_lost, f"the loss of {lost}")

    only(ONE, Run(first.id, first.run), "two")
    only(TWO, Run(second.id, second.run), "one")
    database.take_over("two", LONG)
    assert status(database, second.id) == "queued"
    assert status(database, first.id) == "running"
    assert database.heartbeat(TWO, [Run(second.id, second.run)]) == {(second.id, second.run)}
    assert database.held("two") == []


def test_a_claim_whose_response_was_lost_is_undone(database: JobDatabase) -> None:
    """A heartbeat names all runs that the worker knows; any other one is queued again, which costs no attempt."""
    known, unknown, others = running(database, 0, ONE), running(database, 1, ONE), running(database, 2, TWO)
    assert database.heartbeat(ONE, [Run(known.id, known.run)]) == set()
    assert [status(database, job.id) for job in (known, unknown, others)] == ["running", "queued", "running"]
    assert claimed(database, TWO).attempts == 1
    assert not database.finish(unknown.id, unknown.run, "done")


def test_what_a_stopped_worker_ran_costs_no_attempt(database: JobDatabase) -> None:
    """What was running when a worker was told to stop is queued again; a worker that died costs an attempt."""
    for end, attempts in ((database.release, 1), (lambda name: database.take_over(name, LONG), 2)):
        job = running(database, attempts, ONE)
        end("one")
        assert status(database, job.id) == "queued"
        assert "one" not in {worker.name for worker in database.workers()}
        again = claimed(database, TWO)
        assert (again.id, again.attempts) == (job.id, attempts)
        database.finish(again.id, again.run, "done")


def test_a_heartbeat_can_come_too_late(database: JobDatabase) -> None:
    """A late heartbeat learns that another worker has claimed the job, and changes nothing."""
    lost = running(database, 0, ONE)
    database.settle([lost], LONG)
    again = claimed(database, TWO)
    assert database.heartbeat(ONE, [Run(lost.id, lost.run)]) == {(lost.id, lost.run)}
    assert database.held("one") == []
    assert database.held("two") == [again]


def test_poison_fails_after_three_workers(database: JobDatabase) -> None:
    """A job is retried twice, then fails; each loss is counted."""
    losses = counted("worker_losses")
    accept(database, 0)
    for attempt in (1, 2, 3):
        job = claimed(database)
        assert job.attempts == attempt
        database.settle([job], LONG)
    ended = the(database, IDS[0])
    assert (ended.status, ended.attempts) == ("failed", 3)
    assert ended.error is not None
    assert ended.error["code"] == "worker-lost"
    assert counted("worker_losses") == losses + 3


def test_a_job_out_of_time_is_not_tried_again(database: JobDatabase) -> None:
    """The job of a worker that hung and was killed fails."""
    job = running(database)
    eventually(lambda: job.started is not None and database.now() > job.started, "time")
    database.settle([job], 0.0)
    ended = the(database, IDS[0])
    assert ended.error is not None
    assert (ended.status, ended.error["code"]) == ("failed", "timed-out")


def test_many_notice_but_one_settles(open_database: Open) -> None:
    """A loss costs each job of a group one attempt, however many servers detect it."""
    database, losses = open_database(), counted("worker_losses")
    database.enqueue(work(0, 1, 2, recipe="r", tokens=10))
    jobs = database.claim(Worker("one", most_tokens=100))
    assert len(jobs) == 3
    gate = threading.Barrier(6)

    def notice(_: int) -> None:
        own = open_database()
        found = own.held("one")
        gate.wait()
        own.settle(found, LONG)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(notice, range(6)))
    assert [the(database, job.id).status for job in jobs] == ["queued"] * 3
    assert sum(claimed(database).attempts for _ in jobs) == 6
    assert 1 <= counted("worker_losses") - losses <= 3


def test_a_heartbeat_learns_of_a_cancellation(database: JobDatabase) -> None:
    """As long as the worker holds the run, even if the job is sent again and has another run, which it leaves alone."""
    job = running(database, worker=ONE)
    run = Run(job.id, job.run)
    assert database.heartbeat(ONE, [run]) == set()
    database.cancel(job.id)
    assert database.heartbeat(ONE, [run]) == {run}
    accept(database, 0)
    again = claimed(database, TWO)
    assert database.heartbeat(ONE, [run]) == {run}
    assert not database.progress(job.id, job.run, 0.5, "forward", "")
    assert not database.finish(job.id, job.run, "cancelled", PROBLEM)
    assert the(database, job.id) == again


OVERDUE = {
    "cancelled": {"job_seconds": LONG, "cancel_seconds": 0.2},
    "late": {"job_seconds": 0.2, "cancel_seconds": LONG},
}


@pytest.mark.parametrize("why", OVERDUE)
def test_a_process_whose_job_does_not_stop_exits(
    database: JobDatabase, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a cancellation nor the time limit stops its engine: after a while the process ends."""
    monkeypatch.setattr(worker_process, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(worker_process, "HEARTBEAT_SECONDS", 0.05)
    accept(database, 0)
    child = multiprocessing.get_context("fork").Process(target=_hang, args=(database, OVERDUE[why]))
    child.start()
    try:
        eventually(lambda: status(database) == "running", "the job")
        if why == "cancelled":
            time.sleep(0.5)
            assert child.is_alive()
            database.cancel(IDS[0])
        child.join(60)
        assert child.exitcode == 1
    finally:
        child.kill()


def _hang(database: JobDatabase, limits: dict[str, float]) -> None:
    """Run a job that never ends, in a child with its own connections."""
    database._database._engine.dispose(close=False)
    process = WorkerProcess(ONE, database, Hanging, **limits)
    process.start()
    process.run_next()


class Hanging:
    """An engine that neither a cancellation nor a time limit stops."""

    warm: frozenset[str] = frozenset()
    most_tokens = 0

    def prewarm(self) -> bool:
        """Load nothing."""
        return False

    def run(self, _: Sequence[Job], __: object) -> dict[str, Problem | None]:
        while True:
            with suppress(Exception):
                time.sleep(60)


class Interrupted:
    """An engine whose job the time limit interrupts while it loads a model, and which reports that as a damaged file."""

    warm: frozenset[str] = frozenset()
    most_tokens = 100

    def __init__(self) -> None:
        self.passes: list[list[str]] = []

    def prewarm(self) -> bool:
        """Load nothing."""
        return False

    def run(self, jobs: Sequence[Job], _: object) -> dict[str, Problem | None]:
        self.passes.append([job.id for job in jobs])
        try:
            time.sleep(10)
        except Exception:  # noqa: BLE001  # as libraries do
            return {job.id: PROBLEM for job in jobs}
        raise AssertionError("not interrupted")


@pytest.fixture
def keep_alarm() -> Iterator[None]:
    """Restore the alarm of pytest-timeout, which the time limit of jobs replaces."""
    handler, (left, interval) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, left, interval)


@pytest.mark.usefixtures("keep_alarm")
def test_a_job_out_of_time_is_told_so(database: JobDatabase, caplog: pytest.LogCaptureFixture) -> None:
    """The job fails as timed out, whatever the engine reported, and the log says so. Jobs that shared a pass run again alone, each with the whole time."""
    database.enqueue(work(0, 1, recipe="r", tokens=10))
    engine = Interrupted()
    process = WorkerProcess(ONE, database, lambda: engine, job_seconds=0.2, cancel_seconds=2.0)
    process._engine = engine
    while process.run_next():
        pass
    assert engine.passes == [IDS[:2], IDS[:1], IDS[1:2]]
    assert caplog.messages == ["analysis stopped at its time limit"] * 4
    for id_ in IDS[:2]:
        ended = the(database, id_)
        assert (ended.status, ended.error and ended.error["code"], ended.attempts) == ("failed", "timed-out", 2)
