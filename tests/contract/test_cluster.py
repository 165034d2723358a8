"""How a cluster's server handles workers: it settles expired jobs, and kills only workers without a heartbeat."""

from __future__ import annotations

import base64
import json
import os
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from headscope.database import Database
from headscope.jobs import JobDatabase, Worker, celery, cluster, cluster_worker, outbox, supervisor
from headscope.jobs.job import Run
from tests.contract.job_databases import Place, accept, claimed, the, work
from tests.support.compose import Redis
from tests.support.postgres import Postgres
from tests.support.server import eventually

WORKER = Worker("one")


@pytest.fixture
def database(postgres: Postgres) -> Iterator[JobDatabase]:
    place = Place(postgres.url)
    place.clear()
    opened = JobDatabase(Database(place.where))
    yield opened
    opened.close()


@pytest.fixture
def commands(broker: Redis) -> Iterator[list[Any]]:
    """The messages of Celery's remote control during the test."""
    heard: list[Any] = []
    with redis.Redis.from_url(broker.url) as client, client.pubsub() as channel:
        channel.psubscribe("*pidbox*")

        def collect() -> None:
            while not stopped.is_set():
                message = channel.get_message(ignore_subscribe_messages=True, timeout=0.05)
                if message:
                    heard.append(json.loads(base64.b64decode(json.loads(message["data"])["body"])))

        stopped = threading.Event()
        thread = threading.Thread(target=collect)
        thread.start()
        yield heard
        stopped.set()
        thread.join()


def test_only_silent_workers_are_ended(
    broker: Redis, database: JobDatabase, commands: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose claim response was lost is requeued and its worker continues. Without a heartbeat it is asked what to revoke, and its job is requeued."""
    monkeypatch.setattr(supervisor, "STALE_SECONDS", 3.0)
    monkeypatch.setattr(supervisor, "TICK_SECONDS", 0.1)
    accept(database, 0, 1)
    known, unknown = claimed(database, WORKER), claimed(database, WORKER)
    silent = threading.Event()

    def live() -> None:
        while not silent.wait(0.1):
            database.heartbeat(WORKER, [Run(known.id, known.run)])

    heart = threading.Thread(target=live)
    heart.start()
    tending = cluster.Cluster(database, broker.url, job_seconds=900.0)
    tending.start()
    try:
        eventually(lambda: the(database, unknown.id).status == "queued", "the unknown run's end")
        assert the(database, known.id).status == "running"
        assert commands == []
        silent.set()
        eventually(lambda: the(database, known.id).status == "queued", "the silent worker's loss")
        assert (commands[0]["method"], commands[0]["destination"]) == ("active", ["headscope@one"])
    finally:
        silent.set()
        heart.join()
        tending.stop()


def test_a_silent_worker_is_restarted_while_it_is_asked(
    broker: Redis, database: JobDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking what to revoke takes time: the jobs of a worker that is back by then stay its own."""
    monkeypatch.setattr(supervisor, "STALE_SECONDS", 1.0)
    monkeypatch.setattr(supervisor, "TICK_SECONDS", 0.1)
    accept(database, 0)
    job = claimed(database, WORKER)
    asked = threading.Event()

    class Restarted(cluster.Cluster):
        def _kill(self, worker: str) -> None:
            super()._kill(worker)
            database.heartbeat(WORKER, [Run(job.id, job.run)])

        def _dispatch(self, *, due: bool) -> None:
            if database.workers():
                asked.set()

    tending = Restarted(database, broker.url, job_seconds=900.0)
    tending.start()
    try:
        eventually(asked.is_set, "a worker that was asked")
    finally:
        tending.stop()
    assert (the(database, job.id).status, the(database, job.id).run) == ("running", job.run)


def test_the_rest_of_the_task_of_a_worker_that_died(
    broker: Redis, database: JobDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of a task whose worker has begun it wait for this worker; once it is lost, they are sent again."""
    monkeypatch.setattr(outbox, "LOST_SECONDS", -1.0)
    database.enqueue(work(0, 1, 2, recipe="r", tokens=10))
    database.heartbeat(Worker("one"), [])
    sending = outbox.Outbox(database, celery.application(broker.url, job_seconds=900.0), broker.url)
    sending.send()
    sending.recover()
    (task,) = database.unstarted()
    broker.flush()  # a message that a worker has received is in no queue
    assert database.claim(Worker("one"), task=task)
    sending.recover()
    sending.send()
    assert database.unstarted() == {}
    database.take_over("one", 900.0)
    assert database.unstarted() == {task: "headscope.cpu"}
    sending.recover()
    assert database.unstarted() == {}
    database.heartbeat(Worker("one"), [])
    sending.send()
    sent = database.unstarted()
    assert len(sent) == 2
    assert task not in sent


def test_messages_on_their_way_are_not_missed(
    broker: Redis, database: JobDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle worker is replaced if messages stay queued, not if it finds some at a few heartbeats: it may be about to receive them."""
    monkeypatch.setattr(cluster_worker, "SILENCE_SECONDS", -1.0)
    ended: list[int] = []
    monkeypatch.setattr("os.kill", lambda process, _: ended.append(process))
    accept(database, 0)
    database.heartbeat(WORKER, [])
    sending = outbox.Outbox(database, celery.application(broker.url, job_seconds=900.0), broker.url)
    sending.send()
    limits = {"job_seconds": 900.0, "cancel_seconds": 2.0}
    process = cluster_worker.ClusterWorkerProcess(WORKER, database, _none, sending, lambda: None, **limits)
    process._idle_since = 0.0
    for limit, replaced in ((3600.0, []), (-1.0, [os.getppid()])):
        monkeypatch.setattr(cluster_worker, "QUEUED_SECONDS", limit)
        for _ in range(3):
            process._after_heartbeat()
        assert ended[:1] == replaced
    ended.clear()
    broker.flush()
    process._after_heartbeat()
    assert ended == []


def _none() -> Any:
    """No engine is created."""
    raise AssertionError


@pytest.mark.parametrize(
    ("url", "verifies"),
    [
        ("rediss://:secret@broker.example:6379/0", ssl.CERT_REQUIRED),
        ("rediss://broker.example:6379/0?ssl_ca_certs=/ca.pem", ssl.CERT_REQUIRED),
        ("rediss://broker.example:6379/0?ssl_cert_reqs=none", ssl.CERT_NONE),
    ],
)
def test_the_certificate_of_a_broker_is_verified(url: str, verifies: ssl.VerifyMode) -> None:
    """Unless its URL says otherwise."""
    assert celery.application(url, job_seconds=60.0).connection().ssl["ssl_cert_reqs"] == verifies
