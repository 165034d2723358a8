"""Scheduling: fair to owners, in favour of loaded models, with correct queue positions."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from headscope.jobs import Job, JobDatabase, Work, Worker
from headscope.jobs import scheduling as rules
from tests.contract.job_databases import IDS, WORKER, accept, claimed, order, the


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
    """A user with one job waits for at most two jobs of another user's flood, even with a batch against single requests."""
    accept(database, *range(100), owner="flooder")
    for taken in range(4):
        for _ in range(taken):
            job = claimed(database)
            database.finish(job.id, job.run, "done")
        (mine,) = accept(database, 1000 + taken, owner="ann", priority=priority)
        place = database.position(mine)
        assert place is not None
        assert place <= 2
        assert [claimed(database).id for _ in range(place + 1)][-1] == mine.id


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


def test_positions_are_the_order_of_claims(database: JobDatabase) -> None:
    """The position of every queued job is correct, with random owners, batches, claims, cancellations and losses."""
    chance = random.Random(0)
    jobs = []
    for number in range(120):
        jobs += accept(database, number, owner=chance.choice("aaaaabcd"), priority=chance.randrange(2))
        if chance.random() < 0.3:
            job = claimed(database)
            if chance.random() < 0.4:
                database.requeue(job.id, job.run, "again")
        if chance.random() < 0.2:
            database.cancel(chance.choice(jobs).id)
    waiting = [job for job in database.get_many([job.id for job in jobs]).values() if job.status == "queued"]
    places = {job.id: database.position(job) for job in waiting}
    assert sorted(places.values()) == list(range(len(waiting)))
    assert order(database) == sorted(places, key=lambda id_: places[id_] or 0)


def test_no_position_once_it_runs(database: JobDatabase) -> None:
    """Only queued jobs have a position."""
    (queued,) = accept(database, 0)
    assert database.position(queued) == 0
    running = claimed(database)
    assert database.position(running) is None
    assert database.position(queued) is None


def test_warm_models_go_first(database: JobDatabase) -> None:
    """Jobs of a loaded model precede the owner's other jobs, and other owners' jobs by one round at most."""
    for number in range(12):
        accept(database, number, model=f"m{number % 3}")
    warm = Worker("w", warm=frozenset({"m1"}))
    assert [the(database, id_).model for id_ in order(database, warm)] == ["m1"] * 4 + ["m0", "m2"] * 4


def test_alternating_models_are_not_loaded_again_and_again(database: JobDatabase) -> None:
    """A worker with one model in memory runs 200 jobs of five models with a few loads of each."""
    chance = random.Random(0)
    database.enqueue(Work(f"{number:032x}", "{}", model=chance.choice("vwxyz")) for number in range(200))
    models = []
    for _ in range(200):
        job = claimed(database, Worker("w", warm=frozenset(models[-1:])))
        models.append(job.model)
        database.finish(job.id, job.run, "done")
    loads = 1 + sum(one != next_ for one, next_ in itertools.pairwise(models))
    assert loads <= 20


def test_a_warm_model_is_not_unfair(database: JobDatabase) -> None:
    """A job of a model that is not loaded still waits for at most two jobs of a flood, and no batch overtakes a single request."""
    accept(database, *range(50), owner="flooder", model="warm")
    (mine,) = accept(database, 1000, owner="ann", model="cold")
    warm = Worker("w", warm=frozenset({"warm"}))
    assert mine.id in [claimed(database, warm).id for _ in range(3)]


def test_a_batch_of_a_warm_model_waits(database: JobDatabase) -> None:
    """Even if its model is loaded."""
    accept(database, 0, priority=1, model="warm")
    accept(database, 1, model="cold")
    assert order(database, Worker("w", warm=frozenset({"warm"}))) == ids(1, 0)


def test_the_head_is_not_passed_over_for_long(database: JobDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job at the head of the queue is taken some seconds after it was first passed over, whatever is loaded."""
    accept(database, 0, model="cold")
    accept(database, 1, 2, 3, model="warm")
    warm = Worker("w", warm=frozenset({"warm"}))
    assert claimed(database, warm).id == IDS[1]
    assert claimed(database, warm).id == IDS[2]
    monkeypatch.setattr(rules, "PATIENCE_SECONDS", 0.0)
    assert claimed(database, warm).id == IDS[0]
    assert claimed(database, warm).id == IDS[3]


@pytest.mark.parametrize("passed_over", [rules.PATIENCE_SECONDS + 0.001, -3600.0])
def test_patience_ends_whatever_the_clock_does(passed_over: float) -> None:
    """A clock that is set back by an hour delays no job by an hour."""
    line = [
        rules.Waiting(id_, "ann", number, 0, number, model, alike=False, tokens=None, attempts=0)
        for number, (id_, model) in enumerate(zip(IDS, ["cold", "warm", "cold", "warm"], strict=True))
    ]
    assert rules.prefer_warm(line, {"warm"}, passed_over) == line
    assert rules.prefer_warm(line, {"warm"}, 0.0) == [line[1], line[3], line[0], line[2]]


def group(database: JobDatabase, most_tokens: int) -> list[Job]:
    return database.claim(Worker("w", most_tokens=most_tokens))


def test_alike_jobs_are_claimed_together(database: JobDatabase) -> None:
    """Jobs of one recipe and length, of any owners, are claimed together as far as they fit, each with its own run."""
    accept(database, 0, 1, recipe="r", tokens=10)
    accept(database, 2, recipe="r", tokens=11)
    accept(database, 3, recipe="s", tokens=10)
    accept(database, 4, recipe="r", tokens=10, owner="ann")
    accept(database, 5, recipe="r", tokens=10, priority=1)
    accept(database, 6, tokens=10)
    accept(database, 7, recipe="r")
    jobs = group(database, 30)
    assert [job.id for job in jobs] == ids(0, 1, 4)
    assert {job.status for job in jobs} == {"running"}
    assert len({job.run for job in jobs}) == 3
    assert [job.id for job in group(database, 30)] == ids(2)
    assert [job.id for job in group(database, 30)] == ids(3)
    assert [job.id for job in group(database, 5)] == ids(6)
    assert [job.id for job in group(database, 1000)] == ids(7)
    assert [job.id for job in group(database, 1000)] == ids(5)


def test_what_has_lost_a_worker_runs_alone(database: JobDatabase) -> None:
    """A job that killed its worker is claimed alone afterwards."""
    accept(database, 0, 1, 2, recipe="r", tokens=10)
    first, second, third = group(database, 100)
    database.requeue(second.id, second.run, "again")
    accept(database, 3, recipe="r", tokens=10)
    assert [job.id for job in group(database, 100)] == [second.id]
    database.requeue(third.id, third.run, "again")
    accept(database, 4, recipe="r", tokens=10)
    database.requeue(first.id, first.run, "again", counted=False)
    assert [job.id for job in group(database, 100)] == ids(0, 3, 4)
    assert [job.id for job in group(database, 100)] == [third.id]


def test_a_group_costs_its_owner_as_many_turns(database: JobDatabase) -> None:
    """A group counts as one turn per job."""
    accept(database, *range(32), owner="ann", recipe="r", tokens=10)
    accept(database, *range(100, 110), owner="bob")
    batches = Worker("w", most_tokens=80)
    taken = [[job.owner for job in database.claim(batches)] for _ in range(10)]
    assert taken == [["ann"] * 8, *[["bob"]] * 8, ["ann"] * 8]


def test_groups_are_bounded() -> None:
    """Even with short inputs."""
    job = rules.Waiting(IDS[0], "ann", 0, 0, 0, "m", alike=True, tokens=1, attempts=0)
    assert rules.count_companions(job, 10**6) == rules.LARGEST_GROUP - 1


def test_cancelled_jobs_leave_the_queue(database: JobDatabase) -> None:
    """Cancelled jobs are not claimed, not counted, and not companions."""
    accept(database, *range(4), recipe="r", tokens=10)
    database.cancel(IDS[0])
    database.cancel(IDS[2])
    assert database.waiting() == database.waiting("local") == 2
    assert database.position(the(database, IDS[3])) == 1
    assert [job.id for job in group(database, 100)] == ids(1, 3)
    assert database.claim(WORKER) == []
