"""Random sequences of events against a simple model: every accepted job ends once, and only by its current run."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from headscope.jobs import Work, Worker
from tests.contract.job_databases import IDS, PROBLEM, Place, prepare, status
from tests.support.extent import extent
from tests.support.postgres import Postgres

WORKERS = [Worker("one"), Worker("two", most_tokens=100)]
OWNERS = st.sampled_from(["ann", "bob"])
UNDER_WAY = ("queued", "running")


class JobStates(RuleBasedStateMachine):
    """The model: status, attempts, current run and owners of each job, and all runs so far."""

    postgres: ClassVar[Postgres | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.place = Place(self.postgres.url if self.postgres else Path(self.folder.name) / "headscope.db")
        self.place.clear() if self.postgres else prepare(self.place.where)
        self.database = self.place.open()
        self.model: dict[str, str] = {}
        self.attempts: dict[str, int] = {}
        self.live: dict[str, tuple[int, str]] = {}
        self.wanted: dict[str, set[str]] = {id_: set() for id_ in IDS}
        self.given: list[tuple[str, int]] = [(IDS[0], -1)]
        self.versions: dict[str, int] = {}

    jobs = Bundle("jobs")
    runs = st.runner().flatmap(lambda self: st.sampled_from(self.given))

    @rule(target=jobs)
    def known(self) -> object:
        return multiple(*IDS)

    @rule(ids=st.lists(jobs, min_size=1, max_size=3), owner=OWNERS)
    def accept(self, ids: list[str], owner: str) -> None:
        self.database.enqueue([Work(id_, "{}", recipe="r", tokens=10, owner=owner) for id_ in ids])
        for id_ in ids:
            self.wanted[id_].add(owner)
            if self.model.get(id_) not in UNDER_WAY:
                self.model[id_], self.attempts[id_] = "queued", 0

    @rule(worker=st.sampled_from(WORKERS))
    def claim(self, worker: Worker) -> None:
        jobs = self.database.claim(worker)
        assert bool(jobs) == ("queued" in self.model.values())
        assert len(jobs) <= 1 or worker.most_tokens
        for job in jobs:
            assert self.model[job.id] == "queued"
            self.model[job.id] = "running"
            self.attempts[job.id] += 1
            assert job.attempts == self.attempts[job.id]
            assert (job.id, job.run) not in self.given
            self.live[job.id] = (job.run, worker.name)
            self.given.append((job.id, job.run))

    def goes_on(self, run: tuple[str, int]) -> bool:
        return self.live.get(run[0], (0, ""))[0] == run[1]

    @rule(run=runs, end=st.sampled_from(["done", "failed", "cancelled"]))
    def finish(self, run: tuple[str, int], end: str) -> None:
        ended = self.database.finish(*run, end, PROBLEM if end == "failed" else None)
        assert ended == self.goes_on(run)
        if ended:
            self.end(run[0], end)

    @rule(run=runs, counted=st.booleans())
    def requeue(self, run: tuple[str, int], *, counted: bool) -> None:
        again = self.database.requeue(*run, "again", counted=counted)
        assert again == self.goes_on(run)
        if again:
            self.model[run[0]] = "queued"
            self.attempts[run[0]] -= not counted
            del self.live[run[0]]

    @rule(run=runs)
    def progress(self, run: tuple[str, int]) -> None:
        assert self.database.progress(*run, 0.5, "forward", "") == self.goes_on(run)

    @rule(name=st.sampled_from(["one", "two"]))
    def lose(self, name: str) -> None:
        lost = self.database.held(name)
        assert {(job.id, job.run) for job in lost} == {
            (id_, run) for id_, (run, worker) in self.live.items() if worker == name
        }
        self.database.settle(lost, 900.0)
        for job in lost:
            if self.attempts[job.id] == 3:
                self.end(job.id, "failed")
            else:
                self.model[job.id] = "queued"
                del self.live[job.id]

    @rule(id_=jobs, owner=st.one_of(st.none(), OWNERS))
    def cancel(self, id_: str, owner: str | None) -> None:
        withdrawn = self.database.cancel(id_, owner)
        assert withdrawn == (self.model.get(id_) in UNDER_WAY and (owner is None or owner in self.wanted[id_]))
        if withdrawn and owner is not None and len(self.wanted[id_]) > 1:
            self.wanted[id_].discard(owner)
        elif withdrawn:
            self.end(id_, "cancelled")

    @rule(id_=jobs, owner=st.one_of(st.none(), OWNERS))
    def forget(self, id_: str, owner: str | None) -> None:
        gone = self.database.forget(id_, owner)
        if self.model.get(id_) in UNDER_WAY:
            assert not gone
            return
        had = id_ in self.model if owner is None else owner in self.wanted[id_]
        self.wanted[id_] -= {owner} if owner else {"ann", "bob"}
        assert gone == (had and not self.wanted[id_])
        if gone:
            self.model.pop(id_, None)

    @rule()
    def restart(self) -> None:
        """Another process continues with the same database."""
        self.database.close()
        self.database = self.place.open()

    def end(self, id_: str, state: str) -> None:
        assert self.model[id_] in UNDER_WAY, "a job ended twice"
        self.model[id_] = state
        self.live.pop(id_, None)

    @invariant()
    def agrees(self) -> None:
        assert {id_: status(self.database, id_) for id_ in IDS} == {id_: self.model.get(id_) for id_ in IDS}
        counts = {state: list(self.model.values()).count(state) for state in set(self.model.values())}
        assert self.database.statuses() == counts
        assert self.database.waiting() == counts.get("queued", 0)
        readers = {id_: {owner for owner in ("ann", "bob") if self.database.may_read(id_, owner)} for id_ in IDS}
        assert readers == self.wanted
        queued = [job for job in self.database.get_many(IDS).values() if job.status == "queued"]
        assert all((self.database.position(job) or 0) < len(queued) for job in queued)
        versions = self.database.versions(IDS)
        assert all(version >= self.versions.get(id_, 0) for id_, version in versions.items())
        self.versions |= versions

    def teardown(self) -> None:
        self.database.close()
        self.folder.cleanup()


class PostgresJobStates(JobStates):
    """The same machine for PostgreSQL."""


FEW = settings(max_examples=extent(30, 6), stateful_step_count=30, derandomize=True, deadline=None)
TestJobStates = JobStates.TestCase
TestJobStates.settings = FEW


@pytest.fixture(scope="module")
def _postgres(postgres: Postgres) -> None:
    PostgresJobStates.postgres = postgres


@pytest.mark.usefixtures("_postgres")
class TestPostgresJobStates(PostgresJobStates.TestCase):  # type: ignore[name-defined, misc]
    """Random sequences of events in PostgreSQL."""

    settings = settings(FEW, max_examples=extent(10, 2))
