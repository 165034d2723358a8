"""A cluster loses workers, servers, its database and its broker, one at a time: every accepted job ends exactly once, without unnecessary computation."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from headscope.jobs import celery
from tests.faults.test_storage import flip
from tests.support.cluster import Cluster
from tests.support.extent import mostly_long
from tests.support.server import SLOW, Server, eventually, gone
from tests.unit import pictures

QUICK = {"model": "bert", "text": "The cat sat."}


@pytest.fixture(scope="module")
def cluster(disturbed: Cluster) -> Iterator[Cluster]:
    """The cluster, which every test leaves running; no fault of this file leaves a stack trace in a log."""
    parts = (*disturbed.servers, *disturbed.workers)
    before = [len(part.log()) for part in parts]
    yield disturbed
    assert "Traceback" not in "".join(part.log()[start:] for part, start in zip(parts, before, strict=True))


@pytest.fixture(autouse=True)
def complete(cluster: Cluster) -> Iterator[None]:
    """Restart what a test has stopped, and check that no job is left."""
    yield
    for part in (*cluster.others, *cluster.workers):
        if not part.running:
            part.start()
    cluster.ready()
    left = ["queued", "running"]
    eventually(lambda: not any(cluster.database().statuses().get(status) for status in left), "the end of every job")


_number = iter(range(1000))


def slow(**more: Any) -> dict[str, Any]:
    """Return a new request that takes seconds."""
    return {**SLOW, "max_tokens": 288 - next(_number), **more}


def quick() -> dict[str, Any]:
    """Return a new request that takes little time."""
    return {**QUICK, "text": f"The cat sat on mat {next(_number)}."}


def ends(server: Server, id_: str, attempts: int = 1) -> None:
    """Check that the analysis is done, after a number of attempts."""
    document = server.ended(id_)
    assert (document["status"], document["attempts"]) == ("done", attempts), document["error"]


def staging(cluster: Cluster) -> list[Path]:
    """Return the folders of results that are being written."""
    return list((cluster.home / "incoming").iterdir())


def test_any_server_any_worker(cluster: Cluster) -> None:
    """An analysis sent to one server is followed and read on the other; two at once run on two workers."""
    # A broker that was away has just been found again.
    inspect = cluster.inspect()
    eventually(lambda: len(inspect.ping() or ()) == 2, "both workers")
    first, second = cluster.servers
    ids = [first.submit(**slow()), second.submit(**slow())]
    workers = {cluster.holder(id_).name for id_ in ids}
    assert len(workers) == 2
    for id_, other in zip(ids, (second, first), strict=True):
        ends(other, id_)
        assert other.get(f"/analyses/{id_}").json() == first.get(f"/analyses/{id_}").json()
        maps = [server.get(f"/analyses/{id_}/grid/weights").content for server in cluster.servers]
        assert maps[0] == maps[1]


@pytest.mark.long
def test_model_process_killed(cluster: Cluster) -> None:
    """SIGKILL of the process that runs the model: another process of the same worker takes over at once, and the job is done on its second attempt."""
    losses = cluster.settled("worker_losses_total")
    id_ = cluster.submit(**slow())
    cluster.forward(id_)
    cluster.holder(id_).child().kill()
    ends(cluster, id_, attempts=2)
    assert cluster.metric("worker_losses_total") == losses + 1


def test_worker_killed(cluster: Cluster) -> None:
    """SIGKILL of a worker: its child exits, a server detects it within seconds, and another worker runs the job."""
    id_ = cluster.submit(**slow())
    cluster.forward(id_)
    worker = cluster.holder(id_)
    child = worker.child()
    worker.kill()
    eventually(lambda: gone(child), "the orphan's end")
    assert len(staging(cluster)) == 1
    eventually(lambda: cluster.get(f"/analyses/{id_}").json()["attempts"] == 2, "another worker")
    ends(cluster, id_, attempts=2)
    eventually(lambda: not staging(cluster), "an empty staging folder")


@pytest.mark.long
def test_worker_restarted(cluster: Cluster) -> None:
    """SIGKILL of a worker that is restarted at once under its name: its jobs are requeued without waiting."""
    others = [worker for worker in cluster.workers if worker is not cluster.workers[0]]
    for worker in others:
        worker.kill(signal.SIGTERM)
    id_ = cluster.submit(**slow())
    cluster.forward(id_)
    worker = cluster.holder(id_)
    worker.kill()
    worker.start()
    ends(cluster, id_, attempts=2)


@pytest.mark.long
def test_killed_before_the_job_began(cluster: Cluster) -> None:
    """Workers that are killed between receiving a message and beginning its jobs keep the message at the broker; the jobs are sent again within seconds."""
    for worker in cluster.workers:
        worker.child().suspend()
    id_ = cluster.submit(**quick())
    with cluster.broker.client() as broker:
        eventually(lambda: broker.hlen("unacked"), "a worker that has the message")
    for worker in cluster.workers:
        worker.kill()
        worker.start()
    eventually(lambda: cluster.get(f"/analyses/{id_}").json()["status"] == "done", "its end")


@pytest.mark.long
def test_poison(cluster: Cluster) -> None:
    """A job whose worker dies each time fails with worker-lost; other jobs are not affected."""
    poison, other = cluster.submit(**slow()), cluster.submit(**quick())
    for attempt in (1, 2, 3):
        cluster.forward(poison, attempt)
        cluster.holder(poison).child().kill()
    document = cluster.ended(poison)
    ends(cluster, other)
    assert (document["status"], document["error"]["code"], document["attempts"]) == ("failed", "worker-lost", 3)


@pytest.mark.parametrize("how", mostly_long([signal.SIGKILL, signal.SIGTERM], signal.SIGKILL), ids=lambda how: how.name)
def test_database_restarted(cluster: Cluster, how: signal.Signals) -> None:
    """The database is restarted during jobs and with a queue: every job is done once. Until then grants cannot be checked."""
    stored = cluster.analyse(**quick())
    running = [cluster.submit(**slow()) for _ in range(2)]
    waiting = [cluster.submit(**quick()) for _ in range(5)]
    # Not the other as well: a worker that has the model at hand is done while one that has to load it begins.
    cluster.forward(running[0])
    cluster.db.kill(how)
    for server in cluster.servers:
        for answer in (server.post(quick()), server.get(f"/analyses/{stored['id']}")):
            assert (answer.status_code, answer.json()["code"]) == (503, "database-unavailable")
            assert int(answer.headers["retry-after"]) > 0
        assert server.client.get("/healthz").status_code == 200
        assert (server.client.get("/readyz").status_code, server.client.get("/readyz").json()["status"]) == (
            503,
            "degraded",
        )
    cluster.db.start()
    cluster.back()
    assert cluster.get(f"/analyses/{stored['id']}").json() == stored
    for id_ in (*running, *waiting):
        ends(cluster, id_)


@pytest.mark.long
def test_database_does_not_answer(cluster: Cluster) -> None:
    """A paused database: new work gets 503 and the server is healthy; jobs continue with the database."""
    id_ = cluster.submit(**slow())
    cluster.forward(id_)
    cluster.db.pause()
    try:
        assert cluster.post(quick()).status_code == 503
        assert cluster.client.get("/healthz").status_code == 200
    finally:
        cluster.db.resume()
    cluster.back()
    ends(cluster, id_)


def test_damage_is_found_while_the_database_is_away(cluster: Cluster) -> None:
    """A damaged result that cannot be recomputed now is not quarantined: once the database is back, every server returns it."""
    path = f"/analyses/{cluster.analyse(**quick())['id']}"
    before = cluster.get(f"{path}/grid/weights").content
    flip(cluster.home / "results" / path[10:12] / path[10:] / "small.safetensors")
    cluster.cache.restart()  # it knows that answer, and forgets it
    cluster.db.kill()
    answers = [server.get(f"{path}{part}") for server in cluster.servers for part in ("", "/grid/weights")]
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "database-unavailable")}
    cluster.db.start()
    cluster.back()
    for server in reversed(cluster.servers):
        again = load(server.get(f"{path}/grid/weights").content)
        assert all(np.array_equal(values, again[name], equal_nan=True) for name, values in load(before).items())


@pytest.mark.parametrize("how", mostly_long(["killed", "paused", "emptied"], "emptied"))
def test_broker_away(cluster: Cluster, how: str) -> None:
    """Without the broker, work is accepted and results are read; with it, every job is done once, even if it comes back empty."""
    stored = cluster.analyse(**quick())
    running, waiting = cluster.submit(**slow()), [cluster.submit(**quick()) for _ in range(3)]
    cluster.forward(running)
    cluster.broker.pause() if how == "paused" else cluster.broker.kill()
    waiting += [server.submit(**quick()) for server in cluster.servers]
    assert cluster.get(f"/analyses/{stored['id']}").json() == stored
    if how == "emptied":
        cluster.broker.empty()
    else:
        cluster.broker.resume() if how == "paused" else cluster.broker.start()
    cluster.back()
    for id_ in (running, *waiting):
        ends(cluster, id_)


def test_told_to_stop(cluster: Cluster) -> None:
    """SIGTERM of a worker with a job: the job is done without a failed attempt, and the worker deregisters."""
    id_ = cluster.submit(**slow())
    worker = cluster.holder(id_)
    worker.kill(signal.SIGTERM)
    assert worker.process.returncode == 0
    assert worker.name not in [listed.name for listed in cluster.database().workers()]
    ends(cluster, id_)


@pytest.mark.long
def test_server_told_to_stop(cluster: Cluster) -> None:
    """A server that stops or is killed loses no job."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        (other,) = cluster.others
        id_ = other.submit(**slow())
        waiting = other.submit(**quick())
        cluster.holder(id_)
        other.restart(how)
        ends(other, id_)
        ends(cluster, waiting)


def test_server_started_without_services(models: Path, tmp_path: Path) -> None:
    """A server that starts without database and broker is alive and reports what is missing."""
    away = {"redis_url": "redis://127.0.0.1:1/0", "database_url": "postgresql://127.0.0.1:1/headscope"}
    server = Server(tmp_path / "home", models, **away).start(ready=503)
    try:
        assert server.client.get("/healthz").status_code == 200
        assert server.post(quick()).json()["code"] == "database-unavailable"
        assert (
            server.get("/lenses").json()["code"] == "database-unavailable"
        )  # only the database knows whether there are users
    finally:
        server.kill()


def cancel(server: Server, id_: str) -> None:
    """DELETE an analysis that has not ended; again if its worker was stopped in the middle of a change, until the database ends that."""

    def accepted() -> bool:
        answer = server.client.delete(f"/api/v1/analyses/{id_}")
        assert answer.status_code in (202, 503), answer.text
        return answer.status_code == 202

    eventually(accepted, "a cancellation")


def test_cancel_queued(cluster: Cluster) -> None:
    """A queued job never runs."""
    passes = cluster.settled("forward_passes_total")
    children = cluster.children()
    for child in children:  # nothing runs before it is cancelled
        child.suspend()
    ahead = [cluster.submit(**quick()) for _ in range(2)]
    waiting = cluster.submit(**quick())
    cancel(cluster.others[0], waiting)
    for child in children:
        child.resume()
    for id_ in ahead:
        ends(cluster, id_)
    assert cluster.get(f"/analyses/{waiting}").json()["status"] == "cancelled"
    assert cluster.metric("forward_passes_total") == passes + 2


def test_cancel_running(cluster: Cluster) -> None:
    """A running job stops between two layers; the same process runs the next job."""
    passes = cluster.settled("forward_passes_total")
    id_ = cluster.submit(**slow())
    cluster.forward(id_)
    worker = cluster.holder(id_)
    child = worker.child()
    cancel(cluster.others[0], id_)
    eventually(lambda: not cluster.database().held(worker.name), "the worker's letting go")
    assert child.is_running()
    assert cluster.get(f"/analyses/{id_}").json()["status"] == "cancelled"
    assert cluster.metric("forward_passes_total") == passes


@pytest.mark.long
def test_cancel_hanging(cluster: Cluster) -> None:
    """A process that ignores a cancellation is killed, and its worker runs the next job in a new one."""
    id_ = cluster.submit(**slow())
    cluster.forward(id_)
    worker = cluster.holder(id_)
    child = worker.child()
    child.suspend()
    cancel(cluster, id_)
    eventually(lambda: gone(child), "the end of what hangs")
    eventually(lambda: worker.child() != child, "another child")
    eventually(lambda: not staging(cluster), "an empty staging folder")
    assert cluster.get(f"/analyses/{id_}").json()["status"] == "cancelled"


@pytest.mark.long
def test_limits(models: Path, tmp_path: Path) -> None:
    """A job beyond its time limit fails with timed-out and is not retried: at once if it responds, else when its process is killed.

    A process above its memory limit is replaced after its job. The worker's log always has one JSON object per line.
    """
    settings = {"job_seconds": 4, "worker_bytes": 1, "log_format": "json"}
    with Cluster(tmp_path / "home", models, constants={"celery.GRACE_SECONDS": 4.0}, **settings) as cluster:
        long = slow(text="The cat sat on the mat because it was tired. " * 90, lenses=["effective-simplex"])
        slowest = cluster.submit(**{**long, "max_tokens": 1000})
        document = cluster.ended(slowest)
        assert (document["status"], document["error"]["code"], document["attempts"]) == ("failed", "timed-out", 1)
        id_ = cluster.submit(**slow())
        child = cluster.holder(id_).child()
        child.suspend()
        document = cluster.ended(id_)
        assert (document["status"], document["error"]["code"], document["attempts"]) == ("failed", "timed-out", 1)
        ends(cluster, cluster.submit(**quick()))
        last = cluster.child()
        ends(cluster, cluster.submit(**quick()))
        assert last != child
        eventually(lambda: cluster.child() != last, "another process")
        events = [json.loads(line) for line in cluster.workers[0].log().splitlines()]
        assert sum(event.get("end") == "done" for event in events) == 2
        assert [event["job"] for event in events if event["event"] == "analysis stopped at its time limit"] == [slowest]


@pytest.mark.long
def test_two_workers_compute_what_one_server_does(cluster: Cluster, embedded: Server) -> None:
    """A batch of 80 inputs of many lengths: both workers run parts of it, and all bytes equal those of the embedded deployment."""
    inputs = [{"text": f"{'The cat sat on the mat. ' * (number % 7)}Number {number}."} for number in range(80)]
    body = {"model": "bert", "lenses": ["weights", "effective"], "measures": ["entropy"], "inputs": inputs}
    ids = [server.post(body, "/analyses/batch").json()["ids"] for server in (cluster, embedded)]
    assert ids[0] == ids[1]
    for id_ in ids[0]:
        shared, single = (numbers(server, id_) for server in (cluster, embedded))
        assert shared.keys() == single.keys()
        assert all(values.tobytes() == single[name].tobytes() for name, values in shared.items())
    jobs = [cluster.database().get(id_) for id_ in ids[0]]
    assert {job.worker for job in jobs if job is not None} == {worker.name for worker in cluster.workers}


def numbers(server: Server, id_: str) -> dict[str, np.ndarray]:
    """Return all arrays of a result."""
    ends(server, id_)
    arrays: dict[str, np.ndarray] = load(server.get(f"/analyses/{id_}/export").content)
    return arrays


def test_images_reach_the_worker(cluster: Cluster) -> None:
    """An image is not part of a message or a job, but the worker can read it."""
    image = base64.b64encode(pictures.GOOD["png"][0]()).decode()
    id_ = cluster.submit(model="vit", image=image, lenses=["weights"])
    ends(cluster.others[0], id_)
    job = cluster.database().get(id_)
    assert job is not None
    assert image not in job.payload
    named = json.loads(job.payload)["image"]
    assert cluster.others[0].submit(model="vit", image=named, lenses=["weights"]) == id_
    assert cluster.post({"model": "vit", "image": f"sha256:{'0' * 64}"}).json()["code"] == "invalid-image"


@pytest.mark.long
def test_deaf_worker(models: Path, tmp_path: Path) -> None:
    """A worker that is alive but receives no messages exits, so that it is restarted; not during its start-up, however long that takes."""
    silence = {"cluster_worker.SILENCE_SECONDS": 2.0, "cluster_worker.QUEUED_SECONDS": 0.2}
    impatient = {"worker_process.HEARTBEAT_SECONDS": 0.2, **silence}
    with Cluster(tmp_path / "home", models, constants=impatient, prewarm=True) as cluster:
        cluster.analyse(**quick())
        celery.application(cluster.broker.url, job_seconds=60).control.cancel_consumer("headscope.cpu")
        (worker,) = cluster.workers
        id_ = cluster.submit(**quick())
        eventually(lambda: worker.process.poll() is not None, "the deaf worker's end")
        worker.kill()
        worker.start()
        ends(cluster, id_)
