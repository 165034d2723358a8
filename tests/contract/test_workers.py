"""What becomes of the jobs of workers that die, hang or leave: settled once, by whoever notices first."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from headscope.jobs import Job, JobDatabase, Problem, Worker, settle
from headscope.jobs.worker_process import WorkerProcess
from tests.contract.records import IDS, PROBLEM, Open, accept, claimed, running, status, the
from tests.support.server import eventually

ONE, TWO = Worker("one", device="cuda:0", task="t", warm=frozenset({"m"}), pid=7, host="h"), Worker("two")
LONG = 900.0


def test_a_worker_is_known_while_it_is_heard_of(record: JobDatabase) -> None:
    """What it says of itself, and what it holds, until it leaves."""
    assert record.workers() == []
    record.beat(TWO, [])
    job = running(record, claimant=ONE)
    states = record.workers()
    assert [state.claimant for state in states] == [ONE, TWO]
    assert [state.jobs for state in states] == [(job.id,), ()]
    assert states[0].seen <= record.now()
    record.finish(job.id, job.run, "done")
    record.leave("two")
    assert [(state.claimant.name, state.jobs) for state in record.workers()] == [("one", ())]


def test_runs_without_heartbeat_are_lost(record: JobDatabase) -> None:
    """Those whose worker beats are not; nor does a worker keep a run alive that it knows nothing of."""
    first, second = running(record, 0, ONE), running(record, 1, TWO)
    assert record.lost(60) == []
    assert {job.id for job in record.lost()} == {first.id, second.id}
    assert record.lost(name="two") == [second]

    def only(claimant: Worker, lost: str) -> None:
        """From now on nobody but this worker beats, for both runs: in the end the other one is lost, and that one only."""
        since = record.now()

        def is_lost() -> bool:
            record.beat(claimant, [first.run, second.run, 12345])
            return [job.worker for job in record.lost(record.now() - since)] == [lost]

        eventually(is_lost, f"the loss of {lost}")

    only(ONE, "two")
    only(TWO, "one")
    settle(record, record.lost(name="two"), LONG)
    assert status(record, second.id) == "queued"
    assert status(record, first.id) == "running"
    record.beat(TWO, [second.run])
    assert [job.id for job in record.lost()] == [first.id]


def test_a_heartbeat_can_come_too_late(record: JobDatabase) -> None:
    """A worker that was given up, and comes back, keeps nothing alive that is another one's now."""
    lost = running(record, 0, ONE)
    settle(record, [lost], LONG)
    again = claimed(record, TWO)
    record.beat(ONE, [lost.run, again.run])
    assert record.lost(name="one") == []
    assert record.lost(name="two") == [again]


def test_poison_fails_after_three_workers(record: JobDatabase) -> None:
    """Tried again twice, then failed; each loss is counted."""
    accept(record, 0)
    for attempt in (1, 2, 3):
        job = claimed(record)
        assert job.attempts == attempt
        settle(record, [job], LONG)
    ended = the(record, IDS[0])
    assert (ended.status, ended.attempts) == ("failed", 3)
    assert ended.error is not None
    assert ended.error["code"] == "worker-lost"
    assert record.counters() == {"worker_losses": 3}


def test_a_job_out_of_time_is_not_tried_again(record: JobDatabase) -> None:
    """Its worker hung, and was killed for it."""
    job = running(record)
    eventually(lambda: job.started is not None and record.now() > job.started, "time")
    settle(record, [job], 0.0)
    ended = the(record, IDS[0])
    assert ended.error is not None
    assert (ended.status, ended.error["code"]) == ("failed", "timed-out")


def test_many_notice_but_one_settles(open_record: Open) -> None:
    """A loss costs each job of a group one attempt, however many servers notice at once."""
    record = open_record()
    accept(record, 0, 1, 2, recipe="r", tokens=10)
    jobs = record.claim(Worker("one", most_tokens=100))
    assert len(jobs) == 3
    gate = threading.Barrier(6)

    def notice(_: int) -> None:
        own = open_record()
        found = own.lost()
        gate.wait()
        settle(own, found, LONG)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(notice, range(6)))
    assert [the(record, job.id).status for job in jobs] == ["queued"] * 3
    assert sum(claimed(record).attempts for _ in jobs) == 6
    assert 1 <= record.counters()["worker_losses"] <= 3


def test_a_cancelled_run_is_held_until_its_worker_lets_go(record: JobDatabase) -> None:
    """So that a worker which does not listen can be killed; sent again meanwhile, the job is another run."""
    job = running(record, claimant=ONE)
    record.cancel(job.id)
    assert record.unheeded(60) == []
    (run,) = eventually(lambda: record.unheeded(0.0), "the unheeded run")
    assert (run.id, run.run, run.worker) == (job.id, job.run, "one")
    assert record.workers()[0].jobs == (job.id,)
    accept(record, 0)
    again = claimed(record, TWO)
    assert not record.progress(job.id, job.run, 0.5, "forward", "")
    assert not record.finish(job.id, job.run, "cancelled", PROBLEM)
    assert record.unheeded(0.0) == []
    assert the(record, job.id) == again


@pytest.mark.parametrize("how", ["leaves", "forgotten"])
def test_nobody_is_killed_who_has_left(record: JobDatabase, how: str) -> None:
    """The cancelled runs of a worker whose process has ended are let go."""
    job = running(record, claimant=ONE)
    record.cancel(job.id)
    eventually(lambda: record.unheeded(0.0), "the unheeded run")
    if how == "leaves":
        record.leave("one")
    else:
        eventually(lambda: record.trim(older_than=0.0) or not record.workers(), "the end of the worker's entry")
    record.beat(ONE, [])
    assert record.unheeded(0.0) == []
    assert record.workers()[0].jobs == ()


class Interrupted:
    """An engine whose job is interrupted by the time limit while it loads a model, and takes that for a damaged file."""

    warm: frozenset[str] = frozenset()
    most_tokens = 0

    def run(self, jobs: list[Job], _: object) -> dict[str, Problem | None]:
        try:
            os.kill(os.getpid(), signal.SIGUSR1)  # as Celery does at its soft limit
            time.sleep(10)
        except SoftTimeLimitExceeded:
            return {job.id: PROBLEM for job in jobs}
        raise AssertionError("not interrupted")


def test_a_job_out_of_time_is_told_so(record: JobDatabase) -> None:
    """Whatever the interruption was taken for, and however short the job was since its worker claimed it."""
    accept(record, 0)
    station = WorkerProcess(
        ONE, lambda: record, Interrupted, lambda: 0, lambda _: None, job_seconds=LONG, prewarm=False
    )
    station._engine = station._make_engine()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        station.work("t")
    finally:
        signal.signal(signal.SIGUSR1, before)
    ended = the(record, IDS[0])
    assert (ended.status, ended.error and ended.error["code"]) == ("failed", "timed-out")
