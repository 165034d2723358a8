"""Scheduling: fair to owners, in favour of loaded models, with queue positions that hold."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from headscope.jobs import JobDatabase, Worker
from headscope.jobs.queries import AHEAD
from tests.contract.job_databases import IDS, WORKER, accept, claimed, order, the, work
from tests.support.extent import extent


def ids(*numbers: int) -> list[str]:
    return [f"{number:032x}" for number in numbers]


def test_single_requests_first_then_arrival(database: JobDatabase) -> None:
    """An owner's batch is behind all of its single requests, however late they arrive."""
    accept(database, 0, 1, batch="b", priority=1)
    accept(database, 2)
    accept(database, 3)
    assert [database.position(the(database, id_)) for id_ in ids(2, 3, 0, 1)] == [0, 1, 2, 3]
    assert order(database) == ids(2, 3, 0, 1)


@pytest.mark.parametrize("priority", [0, 1])
def test_one_job_waits_for_no_flood(database: JobDatabase, priority: int) -> None:
    """A user with one job waits for one job of another user's flood, even with a batch against single requests, and its position says so."""
    accept(database, *range(100), owner="flooder")
    for taken in range(4):
        for _ in range(taken):
            job = claimed(database)
            database.finish(job.id, job.run, "done")
        (mine,) = accept(database, 1000 + taken, owner="ann", priority=priority)
        assert 1 <= (database.position(mine) or 0) <= AHEAD
        assert mine.id in [claimed(database).id for _ in range(2)]


def test_what_is_asked_for_singly_leaves_its_batch(database: JobDatabase) -> None:
    """It is its owner's next one, or takes the turn of who asked, and is not claimed with its former group."""
    accept(database, *range(8), owner="ann", priority=1, batch="many", recipe="one", tokens=1)
    accept(database, 5, owner="bob")
    assert the(database, f"{5:032x}").owner == "bob"
    accept(database, 7, owner="ann")
    many = Worker("one", most_tokens=1000)
    groups = [[int(job.id, 16) for job in database.claim(many)] for _ in range(3)]
    assert groups in ([[7], [5], [0, 1, 2, 3, 4, 6]], [[5], [7], [0, 1, 2, 3, 4, 6]])


def test_owners_take_turns(database: JobDatabase) -> None:
    """Three owners with many jobs get equal shares, and an owner without jobs does not save up turns."""
    for number, owner in enumerate(("ann", "bob", "cid")):
        accept(database, *range(100 * number, 100 * number + 20), owner=owner)
    taken = Counter(claimed(database).owner for _ in range(30))
    assert taken == {"ann": 10, "bob": 10, "cid": 10}
    accept(database, *range(900, 940), owner="dan")
    taken = Counter(claimed(database).owner for _ in range(20))
    assert max(taken.values()) - min(taken.values()) <= 1


def test_an_owner_who_sends_one_at_a_time_does_not_starve_others(database: JobDatabase) -> None:
    """An owner who always has one queued job gets no more than its share."""
    accept(database, *range(20), owner="ann")
    accept(database, 100, owner="bob")
    taken: Counter[str] = Counter()
    for number in range(20):
        job = claimed(database)
        taken[job.owner] += 1
        if job.owner == "bob":
            accept(database, 101 + number, owner="bob")
        database.finish(job.id, job.run, "done")
    assert taken == {"ann": 10, "bob": 10}


def test_no_job_waits_for_more_than_its_position(database: JobDatabase) -> None:
    """With random owners, batches, claims, cancellations and losses."""
    chance = random.Random(0)
    jobs = []
    for number in range(extent(120, 40)):
        jobs += accept(database, number, owner=chance.choice("aaaaabcd"), priority=chance.randrange(2))
        if chance.random() < 0.3:
            job = claimed(database)
            if chance.random() < 0.4:
                database.requeue(job.id, job.run, "again")
        if chance.random() < 0.2:
            database.cancel(chance.choice(jobs).id)
    waiting = [job for job in database.get_many([job.id for job in jobs]).values() if job.status == "queued"]
    places = {job.id: database.position(job) for job in waiting}
    taken = order(database)
    assert sorted(taken) == sorted(places)
    for number, id_ in enumerate(taken):
        assert number <= (places[id_] or 0) < len(taken)


def test_no_position_once_it_runs(database: JobDatabase) -> None:
    """Only queued jobs have a position."""
    (queued,) = accept(database, 0)
    assert database.position(queued) == 0
    running = claimed(database)
    assert database.position(running) is None
    assert database.position(queued) is None


def group(database: JobDatabase, most_tokens: int) -> list[str]:
    return [job.id for job in database.claim(Worker("w", most_tokens=most_tokens))]


def test_alike_jobs_are_claimed_together(database: JobDatabase) -> None:
    """Jobs of one owner that share recipe and length are grouped when they are sent, and claimed together as far as they fit."""
    database.enqueue(
        [*work(0, 1, recipe="r", tokens=10), *work(2, recipe="r", tokens=11), *work(3, 5, 8, recipe="r", tokens=10)]
    )
    database.enqueue([*work(4, recipe="r", tokens=10), *work(6, tokens=10), *work(7, recipe="r")])
    tasks = {job.id: job.task for job in database.get_many(ids(*range(9))).values()}
    assert len({tasks[id_] for id_ in ids(0, 1, 3, 5, 8)}) == 1
    assert len(set(tasks.values())) == 5
    jobs = database.claim(Worker("w", most_tokens=30))
    assert [job.id for job in jobs] == ids(0, 1, 3)
    assert {job.status for job in jobs} == {"running"}
    assert group(database, 30) == ids(2)
    assert group(database, 5) == ids(5)
    assert group(database, 1000) == ids(8)
    assert [group(database, 1000) for _ in range(4)] == [ids(4), ids(6), ids(7), []]


def test_what_has_lost_a_worker_runs_alone(database: JobDatabase) -> None:
    """A job that killed its worker is claimed alone afterwards."""
    database.enqueue(work(0, 1, 2, recipe="r", tokens=10))
    first, second, _ = database.claim(Worker("w", most_tokens=100))
    for job in (first, second):
        database.requeue(job.id, job.run, "again")
    assert [group(database, 100) for _ in range(3)] == [ids(0), ids(1), []]


def test_a_group_is_one_turn(database: JobDatabase) -> None:
    """One forward pass of many inputs is one turn of its owner."""
    database.enqueue(work(*range(16), owner="ann", recipe="r", tokens=10))
    accept(database, *range(100, 102), owner="bob")
    batches = Worker("w", most_tokens=80)
    taken = [[job.owner for job in database.claim(batches)] for _ in range(4)]
    assert taken == [["ann"] * 8, ["bob"], ["ann"] * 8, ["bob"]]


def test_groups_are_bounded(database: JobDatabase) -> None:
    """Even with short inputs, so that a lost worker does not cost too many."""
    database.enqueue(work(*range(150), recipe="r", tokens=1))
    assert [len(group(database, 10**6)) for _ in range(4)] == [64, 64, 22, 0]


def test_cancelled_jobs_leave_the_queue(database: JobDatabase) -> None:
    """Cancelled jobs are not claimed, not counted, and not companions."""
    database.enqueue(work(*range(4), recipe="r", tokens=10))
    database.cancel(IDS[0])
    database.cancel(IDS[2])
    assert database.waiting() == database.waiting("local") == 2
    assert database.position(the(database, IDS[3])) == 1
    assert group(database, 100) == ids(1, 3)
    assert database.claim(WORKER) == []
