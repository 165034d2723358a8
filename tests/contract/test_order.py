"""Whose turn it is: fair to owners, kind to warm models, and told truly to whoever waits."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from headscope.jobs import Job, JobDatabase, Work, Worker
from headscope.jobs import scheduling as rules
from tests.contract.records import IDS, WORKER, accept, claimed, order, the


def ids(*numbers: int) -> list[str]:
    return [f"{number:032x}" for number in numbers]


def test_single_requests_first_then_arrival(record: JobDatabase) -> None:
    """An owner's batch waits behind its single requests, however late they come."""
    accept(record, 0, 1, batch="b", priority=1)
    accept(record, 2)
    accept(record, 3)
    assert [record.place(the(record, id_)) for id_ in ids(2, 3, 0, 1)] == [0, 1, 2, 3]
    assert order(record) == ids(2, 3, 0, 1)


@pytest.mark.parametrize("priority", [0, 1])
def test_one_job_waits_for_no_flood(record: JobDatabase, priority: int) -> None:
    """A user with one job waits for two of a flooder's at most, whenever it comes, and be it a batch against single requests."""
    accept(record, *range(100), owner="flooder")
    for taken in range(4):
        for _ in range(taken):
            job = claimed(record)
            record.finish(job.id, job.run, "done")
        (mine,) = accept(record, 1000 + taken, owner="ann", priority=priority)
        place = record.place(mine)
        assert place is not None
        assert place <= 2
        assert [claimed(record).id for _ in range(place + 1)][-1] == mine.id


def test_owners_take_turns(record: JobDatabase) -> None:
    """Three owners with many jobs each get the same share, and one who was away does not make up for it."""
    for number, owner in enumerate(("ann", "bob", "cid")):
        accept(record, *range(100 * number, 100 * number + 20), owner=owner)
    taken = Counter(claimed(record).owner for _ in range(30))
    assert taken == {"ann": 10, "bob": 10, "cid": 10}
    accept(record, *range(900, 940), owner="dan")
    taken = Counter(claimed(record).owner for _ in range(20))
    assert max(taken.values()) - min(taken.values()) <= 1


def test_an_owner_who_sends_one_at_a_time_does_not_starve_others(record: JobDatabase) -> None:
    """Always having just one job, sent while the one before runs, gives no more than one's turn."""
    accept(record, *range(20), owner="ann")
    accept(record, 100, owner="bob")
    taken: Counter[str] = Counter()
    for number in range(20):
        job = claimed(record)
        taken[job.owner] += 1
        if job.owner == "bob":
            accept(record, 101 + number, owner="bob")
        record.finish(job.id, job.run, "done")
    assert taken == {"ann": 10, "bob": 10}


def test_places_are_the_order_of_claims(record: JobDatabase) -> None:
    """What every waiting job is told is what happens, with owners and batches in any order, claims, cancellations and losses in between."""
    chance = random.Random(0)
    jobs = []
    for number in range(120):
        jobs += accept(record, number, owner=chance.choice("aaaaabcd"), priority=chance.randrange(2))
        if chance.random() < 0.3:
            job = claimed(record)
            if chance.random() < 0.4:
                record.requeue(job.id, job.run, "again")
        if chance.random() < 0.2:
            record.cancel(chance.choice(jobs).id)
    waiting = [job for job in record.several([job.id for job in jobs]).values() if job.status == "queued"]
    places = {job.id: record.place(job) for job in waiting}
    assert sorted(places.values()) == list(range(len(waiting)))
    assert order(record) == sorted(places, key=lambda id_: places[id_] or 0)


def test_no_place_once_it_runs(record: JobDatabase) -> None:
    """A place is only of what waits."""
    (queued,) = accept(record, 0)
    assert record.place(queued) == 0
    running = claimed(record)
    assert record.place(running) is None
    assert record.place(queued) is None


def test_warm_models_go_first(record: JobDatabase) -> None:
    """An owner's jobs of a model that the worker has in memory go before its others; of owners by one round at most."""
    for number in range(12):
        accept(record, number, model=f"m{number % 3}")
    warm = Worker("w", warm=frozenset({"m1"}))
    assert [the(record, id_).model for id_ in order(record, warm)] == ["m1"] * 4 + ["m0", "m2"] * 4


def test_alternating_models_are_not_loaded_again_and_again(record: JobDatabase) -> None:
    """A worker that keeps one model does 200 jobs of five models in any order with a few loads of each, not one per job."""
    chance = random.Random(0)
    record.enqueue(Work(f"{number:032x}", "{}", model=chance.choice("vwxyz")) for number in range(200))
    models = []
    for _ in range(200):
        job = claimed(record, Worker("w", warm=frozenset(models[-1:])))
        models.append(job.model)
        record.finish(job.id, job.run, "done")
    loads = 1 + sum(one != next_ for one, next_ in itertools.pairwise(models))
    assert loads <= 20


def test_a_warm_model_is_not_unfair(record: JobDatabase) -> None:
    """One job of a cold model still waits for two of a flooder's at most, and no batch passes a single request."""
    accept(record, *range(50), owner="flooder", model="warm")
    (mine,) = accept(record, 1000, owner="ann", model="cold")
    warm = Worker("w", warm=frozenset({"warm"}))
    assert mine.id in [claimed(record, warm).id for _ in range(3)]


def test_a_batch_of_a_warm_model_waits(record: JobDatabase) -> None:
    """However warm its model."""
    accept(record, 0, priority=1, model="warm")
    accept(record, 1, model="cold")
    assert order(record, Worker("w", warm=frozenset({"warm"}))) == ids(1, 0)


def test_the_head_is_not_passed_over_for_long(record: JobDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some seconds at the head of the line a job is taken whatever is warm; the time counts from when it was passed over first."""
    accept(record, 0, model="cold")
    accept(record, 1, 2, 3, model="warm")
    warm = Worker("w", warm=frozenset({"warm"}))
    assert claimed(record, warm).id == IDS[1]
    assert claimed(record, warm).id == IDS[2]
    monkeypatch.setattr(rules, "PATIENCE_SECONDS", 0.0)
    assert claimed(record, warm).id == IDS[0]
    assert claimed(record, warm).id == IDS[3]


@pytest.mark.parametrize("passed_over", [rules.PATIENCE_SECONDS + 0.001, -3600.0])
def test_patience_ends_whatever_the_clock_does(passed_over: float) -> None:
    """Put back by an hour, it makes nobody wait for an hour."""
    line = [
        rules.Waiting(id_, "ann", number, 0, number, model, alike=False, tokens=None, attempts=0)
        for number, (id_, model) in enumerate(zip(IDS, ["cold", "warm", "cold", "warm"], strict=True))
    ]
    assert rules.preferred(line, {"warm"}, passed_over) == line
    assert rules.preferred(line, {"warm"}, 0.0) == [line[1], line[3], line[0], line[2]]


def group(record: JobDatabase, most_tokens: int) -> list[Job]:
    return record.claim(Worker("w", most_tokens=most_tokens))


def test_alike_jobs_are_claimed_together(record: JobDatabase) -> None:
    """One recipe and one length, of whatever owner, as many as fit; each with a run of its own."""
    accept(record, 0, 1, recipe="r", tokens=10)
    accept(record, 2, recipe="r", tokens=11)
    accept(record, 3, recipe="s", tokens=10)
    accept(record, 4, recipe="r", tokens=10, owner="ann")
    accept(record, 5, recipe="r", tokens=10, priority=1)
    accept(record, 6, tokens=10)
    accept(record, 7, recipe="r")
    jobs = group(record, 30)
    assert [job.id for job in jobs] == ids(0, 1, 4)
    assert {job.status for job in jobs} == {"running"}
    assert len({job.run for job in jobs}) == 3
    assert [job.id for job in group(record, 30)] == ids(2)
    assert [job.id for job in group(record, 30)] == ids(3)
    assert [job.id for job in group(record, 5)] == ids(6)
    assert [job.id for job in group(record, 1000)] == ids(7)
    assert [job.id for job in group(record, 1000)] == ids(5)


def test_what_has_lost_a_worker_runs_alone(record: JobDatabase) -> None:
    """A job that killed its worker takes no others along the next time, neither as first nor as companion."""
    accept(record, 0, 1, 2, recipe="r", tokens=10)
    first, second, third = group(record, 100)
    record.requeue(second.id, second.run, "again")
    accept(record, 3, recipe="r", tokens=10)
    assert [job.id for job in group(record, 100)] == [second.id]
    record.requeue(third.id, third.run, "again")
    accept(record, 4, recipe="r", tokens=10)
    record.requeue(first.id, first.run, "again", counted=False)
    assert [job.id for job in group(record, 100)] == ids(0, 3, 4)
    assert [job.id for job in group(record, 100)] == [third.id]


def test_a_group_costs_its_owner_as_many_turns(record: JobDatabase) -> None:
    """Taking many at once is no way past the others."""
    accept(record, *range(32), owner="ann", recipe="r", tokens=10)
    accept(record, *range(100, 110), owner="bob")
    batches = Worker("w", most_tokens=80)
    taken = [[job.owner for job in record.claim(batches)] for _ in range(10)]
    assert taken == [["ann"] * 8, *[["bob"]] * 8, ["ann"] * 8]


def test_groups_are_bounded() -> None:
    """However short the inputs."""
    job = rules.Waiting(IDS[0], "ann", 0, 0, 0, "m", alike=True, tokens=1, attempts=0)
    assert rules.companions(job, 10**6) == rules.LARGEST_GROUP - 1


def test_cancelled_jobs_leave_the_line(record: JobDatabase) -> None:
    """What was cancelled is neither claimed, nor counted, nor a companion."""
    accept(record, *range(4), recipe="r", tokens=10)
    record.cancel(IDS[0])
    record.cancel(IDS[2])
    assert record.waiting() == record.waiting("local") == 2
    assert record.place(the(record, IDS[3])) == 1
    assert [job.id for job in group(record, 100)] == ids(1, 3)
    assert record.claim(WORKER) == []
