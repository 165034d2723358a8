"""Celery carries the jobs: its own tools show them, it may lose everything, and no user waits for another one's flood."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headscope.jobs.outbox import TASK
from tests.support.cluster import Cluster
from tests.support.compose import free_port
from tests.support.server import API, SLOW, Program, eventually


@pytest.fixture
def cluster(disturbed: Cluster) -> Cluster:
    """Two servers, so two that send and recover, and two workers."""
    return disturbed


_number = iter(range(1000))


def slow() -> dict[str, Any]:
    """Return a new request that takes seconds."""
    return {**SLOW, "max_tokens": 210 - next(_number)}


def test_celery_shows_what_runs(cluster: Cluster) -> None:
    """`celery inspect` finds a running job at its worker, under the id of its task and with its own in the arguments; the broker has those that wait."""
    ids = [cluster.submit(**slow()) for _ in range(3)]
    inspect = cluster.inspect()

    def shown() -> dict[str, str]:
        """Return the ids of jobs, with those of their tasks."""
        tasks = [
            task for kind in (inspect.active, inspect.reserved) for tasks in (kind() or {}).values() for task in tasks
        ]
        return {id_: task["id"] for task in tasks for id_ in task["args"][0]}

    def running() -> dict[str, str]:
        jobs = cluster.database().get_many(ids).values()
        return {job.id: job.task for job in jobs if job.status == "running"}

    cluster.forward(ids[0])
    found = eventually(
        lambda: (before := running()) and len(before) == 2 and before.items() <= shown().items() and before, "both"
    )
    names = {job.id: job.worker for job in cluster.database().get_many(found).values()}
    active = inspect.active()
    assert {f"headscope@{names[id_]}" for id_ in found} <= set(active)
    assert all(task.startswith(id_) for id_, task in found.items())
    for id_ in ids:
        assert cluster.ended(id_)["status"] == "done"


@pytest.fixture
def flower(cluster: Cluster, tmp_path: Path) -> Iterator[httpx.Client]:
    """Flower as docs/how-to/deploy.md starts it, and a client of its API."""
    port, program = free_port(), Program(tmp_path / "flower.log")
    words = [sys.executable, "-W", "ignore", "-m", "celery", "--broker", cluster.broker.url, "flower"]
    program.launch([*words, f"--port={port}", "--address=127.0.0.1", "--basic-auth=ada:secret"], cwd=tmp_path)
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}/api", auth=("ada", "secret"), trust_env=False, timeout=60
        ) as client:
            program.await_answer(lambda: _answers(client))
            yield client
    finally:
        program.kill()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/workers", params={"refresh": True}).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.long
def test_flower_shows_what_runs(cluster: Cluster, flower: httpx.Client) -> None:
    """Its API has every worker, and every running job's task at its worker, under the id of its task; at the end it has succeeded."""
    assert httpx.get(f"{flower.base_url}workers", trust_env=False).status_code == 401
    names = {f"headscope@{worker.name}" for worker in cluster.workers if worker.running}
    eventually(lambda: names <= flower.get("/workers", params={"refresh": True}).json().keys(), "the workers")
    ids = [cluster.submit(**slow()) for _ in range(3)]

    def shown(state: str) -> dict[str, str | None]:
        """Return the tasks in that state, with their workers."""
        found = flower.get("/tasks", params={"state": state}).json().items()
        return {id_: task["worker"] for id_, task in found if task["name"] == TASK}

    def running() -> dict[str, str | None]:
        jobs = cluster.database().get_many(ids).values()
        return {job.task: f"headscope@{job.worker}" for job in jobs if job.status == "running"}

    found = eventually(
        lambda: (before := running()) and before.items() <= shown("STARTED").items() and before, "running tasks"
    )
    assert all(any(task.startswith(id_) for id_ in ids) for task in found)
    for id_ in ids:
        assert cluster.ended(id_)["status"] == "done"
    tasks = {job.task for job in cluster.database().get_many(ids).values()}
    eventually(lambda: tasks <= shown("SUCCESS").keys(), "the end of the tasks")


@pytest.mark.long
def test_both_redis_are_wiped_in_the_middle_of_a_run(cluster: Cluster) -> None:
    """Every job is done, at its first attempt."""
    ids = [cluster.submit(**slow()) for _ in range(2)]
    inputs = [{"text": f"The cat sat on mat {number}."} for number in range(60)]
    ids += cluster.post({"model": "bert", "lenses": ["weights"], "inputs": inputs}, "/analyses/batch").json()["ids"]
    cluster.forward(ids[0])
    for redis in (cluster.broker, cluster.cache):
        redis.flush()
    for id_ in ids:
        document = cluster.ended(id_)
        assert (document["status"], document["attempts"]) == ("done", 1), document["error"]


@pytest.mark.long
def test_one_job_waits_for_no_flood(cluster: Cluster) -> None:
    """A user's analysis waits for ten of another user's flood at most, singly or as a batch."""
    token = cluster.create_user("other")
    flood = [{"model": "bert", "text": f"Flood {number}.", "lenses": ["weights"]} for number in range(20)]
    ids = [cluster.submit(**body) for body in flood]
    inputs = [{"text": f"Flood of a batch {number}."} for number in range(120)]
    ids += cluster.post({"model": "bert", "lenses": ["weights"], "inputs": inputs}, "/analyses/batch").json()["ids"]
    with cluster.visitor(token) as other:
        for number in range(3):
            body = {"model": "bert", "text": f"One question, number {number}.", "lenses": ["weights"]}
            answer = other.post(f"{API}/analyses", json=body, headers={"Prefer": "wait=60"})
            assert answer.json()["status"] == "done"
            mine = cluster.database().get(answer.json()["id"])
            started = [job.started for job in cluster.database().get_many(ids).values() if job.started]
            assert sum(mine.created < time < mine.started for time in started) <= 10
    for id_ in ids:
        cluster.client.delete(f"{API}/analyses/{id_}")


@pytest.mark.long
def test_a_worker_for_one_model(cluster: Cluster) -> None:
    """It runs every job of the model and no other."""
    third = cluster.stack.worker("worker-only")
    third.start("--models", "gpt2")
    cluster.workers.append(third)
    cluster.ready()
    number = iter(range(100))

    def runs_there() -> bool:
        """Return whether a job of its model does; servers look for new workers once a second."""
        id_ = cluster.analyse(model="gpt2", text=f"Attempt {next(number)}.")["id"]
        return cluster.database().get(id_).worker == third.name

    try:
        eventually(runs_there, "the worker to be used")
        for model, here in (("gpt2", True), ("bert", False)):
            for _ in range(3):
                id_ = cluster.analyse(model=model, text=f"Number {next(number)} of {model}.")["id"]
                assert (cluster.database().get(id_).worker == third.name) is here
    finally:
        cluster.workers.remove(third)
        third.kill(signal.SIGTERM)
