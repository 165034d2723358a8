"""The record of jobs: every transition is compare-and-set, and every job ends exactly once, whatever the order of events."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from headscope.jobs import Job, Record

IDS = [f"{number:032x}" for number in range(4)]
PROBLEM = {"code": "worker-lost", "detail": "It died."}
Open = Callable[[], Record]


@pytest.fixture
def open_record(tmp_path: Path) -> Open:
    """Opens the same record each time, as another process would."""
    return lambda: Record(tmp_path / "jobs.db")


@pytest.fixture
def record(open_record: Open) -> Record:
    """An empty record."""
    return open_record()


def running(record: Record, id_: str = IDS[0]) -> Job:
    """A job that has been claimed."""
    record.enqueue([(id_, "{}")])
    job = record.claim()
    assert job is not None
    return job


def status(record: Record, id_: str = IDS[0]) -> str | None:
    """The job's status, None if there is none."""
    job = record.get(id_)
    return job and job.status


def test_a_job_from_queue_to_done(record: Record) -> None:
    """queued, running, done; progress and attempts on the way."""
    record.enqueue([(IDS[0], '{"a": 1}')], batch="b")
    assert record.get(IDS[0]).status == "queued"
    job = record.claim()
    assert (job.id, job.payload, job.batch, job.status, job.attempts) == (IDS[0], '{"a": 1}', "b", "running", 1)
    assert record.progress(job.id, 0.5, "forward", "layer 3")
    assert record.finish(job.id, "done")
    ended = record.get(job.id)
    assert (ended.status, ended.fraction, ended.terminal, ended.error) == ("done", 1.0, True, None)
    assert ended.created <= ended.started <= ended.finished


def test_nothing_to_claim(record: Record) -> None:
    """An empty queue gives no job."""
    assert record.claim() is None


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
@pytest.mark.parametrize(
    "late",
    [
        lambda record: record.finish(IDS[0], "done"),
        lambda record: record.finish(IDS[0], "failed", PROBLEM),
        lambda record: record.cancel(IDS[0]),
        lambda record: record.requeue(IDS[0], "again"),
        lambda record: record.progress(IDS[0], 0.9, "forward", ""),
        lambda record: record.recover() > 0,
    ],
    ids=["finish", "fail", "cancel", "requeue", "progress", "recover"],
)
def test_an_ended_job_does_not_change(record: Record, end: str, late: Callable[[Record], bool]) -> None:
    """Late writers lose: nothing moves a job out of a terminal state."""
    running(record)
    record.finish(IDS[0], end, PROBLEM if end == "failed" else None)
    before = record.get(IDS[0])
    assert not late(record)
    assert record.get(IDS[0]) == before


@pytest.mark.parametrize(
    "early",
    [
        lambda record: record.finish(IDS[0], "done"),
        lambda record: record.requeue(IDS[0], "again"),
        lambda record: record.progress(IDS[0], 0.9, "forward", ""),
        lambda record: record.forget(IDS[0]),
    ],
    ids=["finish", "requeue", "progress", "forget"],
)
def test_a_queued_job_can_only_be_claimed_or_cancelled(record: Record, early: Callable[[Record], bool]) -> None:
    """What needs a running or ended job refuses a queued one."""
    record.enqueue([(IDS[0], "{}")])
    before = record.get(IDS[0])
    assert not early(record)
    assert record.get(IDS[0]) == before


@pytest.mark.parametrize("state", ["queued", "running"])
def test_what_is_under_way_is_not_started_twice(record: Record, state: str) -> None:
    """The same work accepted again while it waits or runs changes nothing."""
    record.enqueue([(IDS[0], "first")])
    if state == "running":
        record.claim()
    before = record.get(IDS[0])
    record.enqueue([(IDS[0], "second")], batch="b")
    assert record.get(IDS[0]) == before


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
def test_what_has_ended_starts_anew(record: Record, end: str) -> None:
    """Accepting ended work again queues it with a clean slate."""
    running(record)
    record.finish(IDS[0], end, PROBLEM if end == "failed" else None)
    record.enqueue([(IDS[0], "{}")])
    job = record.get(IDS[0])
    assert (job.status, job.attempts, job.error, job.fraction, job.finished) == ("queued", 0, None, 0.0, None)


def test_order_single_requests_first_then_arrival(record: Record) -> None:
    """A batch waits behind single requests, however late they come."""
    record.enqueue([(IDS[0], "{}"), (IDS[1], "{}")], batch="b", priority=1)
    record.enqueue([(IDS[2], "{}")])
    record.enqueue([(IDS[3], "{}")])
    places = [record.place(record.get(id_)) for id_ in (IDS[2], IDS[3], IDS[0], IDS[1])]
    assert places == [0, 1, 2, 3]
    assert [record.claim().id for _ in IDS] == [IDS[2], IDS[3], IDS[0], IDS[1]]


def test_a_lost_worker_costs_an_attempt(record: Record) -> None:
    """requeue keeps the count of attempts, so that a poison job can be told."""
    running(record)
    assert record.requeue(IDS[0], "again")
    assert record.claim().attempts == 2


def test_a_restart_costs_no_attempt(record: Record, open_record: Open) -> None:
    """What ran when the server stopped is queued again; the stop was not its fault."""
    running(record)
    again = open_record()
    assert again.recover() == 1
    assert again.claim().attempts == 1


def test_everything_is_durable(record: Record, open_record: Open) -> None:
    """Another process sees exactly what was written."""
    running(record, IDS[0])
    record.finish(IDS[0], "failed", PROBLEM)
    record.enqueue([(IDS[1], "{}")])
    other = open_record()
    assert [other.get(id_) for id_ in IDS] == [record.get(id_) for id_ in IDS]
    assert other.get(IDS[0]).error == PROBLEM


def test_a_job_is_claimed_once(open_record: Open) -> None:
    """Eight claimers at once: every job goes to exactly one of them."""
    open_record().enqueue([(f"{number:032x}", "{}") for number in range(64)])
    gate = threading.Barrier(8)

    def claim_all(_: int) -> list[str]:
        record = open_record()
        gate.wait()
        return [job.id for job in iter(record.claim, None)]

    with ThreadPoolExecutor(8) as threads:
        claimed = list(itertools.chain(*threads.map(claim_all, range(8))))
    assert sorted(claimed) == [f"{number:032x}" for number in range(64)]


def test_one_end_wins(open_record: Open) -> None:
    """Eight writers end the same job at once: one of them did it."""
    running(open_record())
    gate = threading.Barrier(8)

    def end(number: int) -> bool:
        record = open_record()
        gate.wait()
        return record.cancel(IDS[0]) if number % 2 else record.finish(IDS[0], "done")

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(end, range(8))) == 1


def test_a_batch_is_accepted_whole_or_not_at_all(record: Record) -> None:
    """If one entry can't be written, none is."""

    def broken() -> Iterator[tuple[str, str]]:
        yield IDS[0], "{}"
        raise OSError

    with pytest.raises(OSError):
        record.enqueue(broken())
    assert record.get(IDS[0]) is None
    record.enqueue([(IDS[0], "{}")])
    assert status(record) == "queued"


def test_versions_are_never_used_twice(record: Record) -> None:
    """Forgetting the newest job must not hide the next change from a reader who has seen it."""
    running(record, IDS[0])
    running(record, IDS[1])
    record.finish(IDS[1], "done")
    seen = record.newest()
    assert record.forget(IDS[1])
    record.finish(IDS[0], "done")
    assert record.changed_since(seen) == (seen + 1, [IDS[0]])


def test_counters_add_up_over_processes(open_record: Open) -> None:
    """Counts from several writers are not lost."""
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: open_record().count("forward_passes"), range(40)))
    assert open_record().counters()["forward_passes"] == 40


class Lives(RuleBasedStateMachine):
    """Any order of events against an obvious model: a dict from id to status."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.record = Record(Path(self.folder.name) / "jobs.db")
        self.model: dict[str, str] = {}
        self.ends: dict[str, int] = {}
        self.newest = 0

    jobs = Bundle("jobs")

    @rule(target=jobs)
    def known(self) -> object:
        return multiple(*IDS)

    @rule(id_=jobs)
    def accept(self, id_: str) -> None:
        self.record.enqueue([(id_, "{}")])
        if self.model.get(id_) not in ("queued", "running"):
            self.model[id_], self.ends[id_] = "queued", 0

    @rule()
    def claim(self) -> None:
        job = self.record.claim()
        assert (job is not None) == ("queued" in self.model.values())
        if job:
            assert self.model[job.id] == "queued"
            self.model[job.id] = "running"

    @rule(id_=jobs, end=st.sampled_from(["done", "failed", "cancelled"]))
    def finish(self, id_: str, end: str) -> None:
        ended = self.record.finish(id_, end, PROBLEM if end == "failed" else None)
        assert ended == (self.model.get(id_) == "running")
        self.end(id_, end, ended=ended)

    @rule(id_=jobs)
    def cancel(self, id_: str) -> None:
        ended = self.record.cancel(id_)
        assert ended == (self.model.get(id_) in ("queued", "running"))
        self.end(id_, "cancelled", ended=ended)

    @rule(id_=jobs)
    def lose(self, id_: str) -> None:
        lost = self.record.requeue(id_, "again")
        assert lost == (self.model.get(id_) == "running")
        if lost:
            self.model[id_] = "queued"

    @rule(id_=jobs)
    def progress(self, id_: str) -> None:
        assert self.record.progress(id_, 0.5, "forward", "") == (self.model.get(id_) == "running")

    @rule(id_=jobs)
    def forget(self, id_: str) -> None:
        forgotten = self.record.forget(id_)
        assert forgotten == (self.model.get(id_) in ("done", "failed", "cancelled"))
        if forgotten:
            del self.model[id_]

    @rule()
    def restart(self) -> None:
        self.record = Record(Path(self.folder.name) / "jobs.db")
        self.record.recover()
        self.model = {id_: "queued" if state == "running" else state for id_, state in self.model.items()}

    def end(self, id_: str, state: str, *, ended: bool) -> None:
        if ended:
            self.model[id_] = state
            self.ends[id_] += 1
            assert self.ends[id_] == 1, "a job ended twice"

    @invariant()
    def agrees(self) -> None:
        assert {id_: status(self.record, id_) for id_ in self.model} == self.model
        assert all(self.record.get(id_) is None for id_ in IDS if id_ not in self.model)
        newest = self.record.newest()
        assert newest >= self.newest
        self.newest = newest

    def teardown(self) -> None:
        self.folder.cleanup()


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=30, derandomize=True, deadline=None)
