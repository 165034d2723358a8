"""Which tasks are sent to the broker: owner after owner, a few of each, to workers that serve them, and again if they are lost."""

from __future__ import annotations

from headscope.jobs import JobDatabase, Worker, sending
from headscope.jobs.queries import AHEAD
from headscope.jobs.sending import queue_name
from tests.contract.job_databases import IDS, accept, the, work

ONE = Worker("one")
HERE = [ONE]


def sent(database: JobDatabase, serving: list[Worker] = HERE) -> list[int]:
    """Send what is next; return the number of the first job of each task."""
    return [int(min(message.ids), 16) for message in database.choose(serving)]


def start(database: JobDatabase, number: int) -> None:
    """Run a job that was sent."""
    (job,) = database.claim(ONE, task=the(database, f"{number:032x}").task)
    assert database.finish(job.id, job.run, "done")


def test_owners_take_turns_and_none_has_many_at_the_broker(database: JobDatabase) -> None:
    """A flood waits in the database, where its order is decided; whoever comes later is sent at once."""
    assert sent(database) == []
    accept(database, *range(100, 120), owner="ann")
    assert sent(database, []) == []
    assert sent(database) == list(range(100, 100 + AHEAD))
    accept(database, *range(3), owner="bob")
    accept(database, 7, owner="cid", priority=1)
    assert sent(database) == [0, 7, 1, 2]
    assert sent(database) == []
    start(database, 101)
    start(database, 102)
    assert sent(database) == [100 + AHEAD, 101 + AHEAD]


def test_positions_behind_what_is_at_the_broker(database: JobDatabase) -> None:
    """However many others wait: no more than AHEAD of each owner go before the first job of another one."""
    accept(database, *range(100, 110), owner="ann")
    assert len(sent(database)) == AHEAD
    (mine,) = accept(database, 0, owner="bob")
    assert database.position(mine) == (1 if database._database.embedded else AHEAD)
    assert sent(database) == [0]
    assert [database.position(the(database, f"{number:032x}")) for number in (100, 109)] == [1, 10]


def test_a_group_is_one_message(database: JobDatabase) -> None:
    """It names all of its jobs; what a worker leaves is sent again under another id, in case the first was revoked."""
    database.enqueue(work(0, 1, 2, recipe="r", tokens=10), priority=1)
    (message,) = database.choose(HERE)
    assert (sorted(message.ids), message.queue, message.priority) == (IDS[:3], "headscope.cpu", 1)
    (first,) = database.claim(ONE, task=message.task)
    assert first.task == message.task
    database.unsend([message.task])
    (again,) = database.choose(HERE)
    assert again.task != message.task
    assert sorted(again.ids) == IDS[1:3]
    assert database.claim(ONE, task=message.task) == []
    assert [job.id for job in database.claim(Worker("two", most_tokens=100), task=again.task)] == IDS[1:3]


def test_a_task_runs_once_however_often_its_message_comes(database: JobDatabase) -> None:
    """A job that is requeued gets a task of its own, so an old message does nothing."""
    accept(database, 0)
    (message,) = database.choose(HERE)
    (job,) = database.claim(ONE, task=message.task)
    assert database.claim(ONE, task=message.task) == []
    assert database.requeue(job.id, job.run, "again")
    assert database.claim(ONE, task=message.task) == []
    (again,) = database.choose(HERE)
    assert [one.id for one in database.claim(ONE, task=again.task)] == [job.id]


def test_what_the_broker_may_have_lost(database: JobDatabase) -> None:
    """A task that has not started can be sent again, not one that has."""
    database.heartbeat(ONE, [])
    accept(database, 0, 1)
    assert database.unstarted() == {}
    first, second = database.choose(HERE)
    assert database.unstarted() == {first.task: "headscope.cpu", second.task: "headscope.cpu"}
    assert database.claim(ONE, task=first.task)
    assert (list(database.unstarted()), database.depths()) == ([second.task], {"cpu": 1})
    database.unsend([first.task, second.task])
    assert (database.unstarted(), database.depths()) == ({}, {"cpu": 0})
    gpu = [Worker("gpu", "cuda:1")]
    (again,) = database.choose(gpu)
    assert (again.ids, again.queue) == (second.ids, "headscope.cuda")


def test_models_are_routed_to_their_workers(database: JobDatabase) -> None:
    """A worker started for some models runs these alone, and they run nowhere else; classes of devices share the rest."""
    a, b = "a" * 64, "b" * 64
    states = [
        Worker("one", "cpu"),
        Worker("two", "cuda:0"),
        Worker("three", "cuda:1", models=frozenset({a})),
    ]
    accept(database, 0, 1, model=a)
    accept(database, 2, 3, 4, 5, model=b, owner="bob")
    found = {int(message.ids[0], 16): message.queue for message in database.choose(states)}
    assert {found[0], found[1]} == {queue_name("cuda", a)}
    assert sorted(found[number] for number in (2, 3, 4, 5)) == ["headscope.cpu"] * 2 + ["headscope.cuda"] * 2
    assert sending.queues_of(states[2]) == [found[0]]


def test_a_model_that_nobody_serves_does_not_block_others(database: JobDatabase) -> None:
    """It waits, also if it is the owner's first."""
    only = [Worker("one", models=frozenset({"m"}))]
    accept(database, 0, model="other")
    accept(database, 1, model="m")
    assert sent(database, only) == [1]
