"""Processes killed during a study: it ends with the numbers of an undisturbed one, and no input counts twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from tests.support import studies
from tests.support.cluster import Cluster
from tests.support.server import API, Server, eventually, gone

CHUNKS = (256, 256, 256, 132)  # inputs of each
INPUTS = sum(CHUNKS)
BODY = studies.asked(INPUTS, seed=7)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Server]:
    """A server that computes the study twice: each test deletes it."""
    with Server(tmp_path_factory.mktemp("studies") / "home", models) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(embedded: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, NDArray[Any]]:
    """The numbers of the study without faults."""
    return studies.arrays(embedded, studies.done(embedded, BODY)["id"], tmp_path_factory.mktemp("study"))


def check(server: Server, id_: str, undisturbed: dict[str, NDArray[Any]], folder: Path) -> None:
    """Check that the study is done with every input, and all numbers are bit-identical."""
    document = studies.ended(server, id_)
    assert document["status"] == "done", document["error"]
    assert document["inputs"] == document["progress"]["of"] == INPUTS
    studies.same(studies.arrays(server, id_, folder), undisturbed)


def test_the_server_is_killed(server: Server, undisturbed: dict[str, NDArray[Any]], tmp_path: Path) -> None:
    """The server is killed with its child. Finished chunks are not computed again, except one whose result was damaged in the meantime."""
    id_ = studies.submit(server, BODY)

    def finished() -> dict[int, Path]:
        found = (server.home / "results").rglob(f"{id_}.*/manifest.json")
        return {int(path.parent.name.split(".")[1]): path for path in found}

    eventually(lambda: len(finished()) > 1, "two finished chunks")
    server.kill()
    (_, manifest), *intact = finished().items()
    manifest.write_bytes(b"damaged")
    server.start()
    assert studies.shown(server, id_)["progress"]["inputs"] > 0
    check(server, id_, undisturbed, tmp_path)
    inputs = sum(CHUNKS[number] for number, _ in intact)
    assert server.settled("study_inputs_total") == INPUTS - inputs  # of the second process
    assert server.client.delete(f"{API}/studies/{id_}").status_code == 204


@pytest.mark.long
def test_the_child_is_killed(server: Server, undisturbed: dict[str, NDArray[Any]], tmp_path: Path) -> None:
    """The next process computes the current chunk."""
    counters = ("worker_losses_total", "study_inputs_total")
    before = [server.settled(name) for name in counters]
    id_ = studies.submit(server, BODY)
    studies.midway(server, id_)
    server.kill_child()
    check(server, id_, undisturbed, tmp_path)
    assert [server.settled(name) - counted for name, counted in zip(counters, before, strict=True)] == [1, INPUTS]
    assert server.client.delete(f"{API}/studies/{id_}").status_code == 204


@pytest.mark.long
def test_a_worker_of_two_is_killed(disturbed: Cluster, undisturbed: dict[str, NDArray[Any]], tmp_path: Path) -> None:
    """A worker and all of its processes are killed: the other worker completes the study."""
    database, workers = disturbed.database(), disturbed.workers
    before = [worker.metric("study_inputs_total") for worker in workers]
    id_ = studies.submit(disturbed, BODY)

    def busy() -> str | None:
        jobs = [database.get(part.id) for part in database.chunks(id_) if part.status == "running"]
        return next((job.worker for job in jobs if job is not None and job.status == "running"), None)

    studies.midway(disturbed, id_)
    name = eventually(busy, "a worker with a chunk")
    (killed, _), (other, counted) = sorted(zip(workers, before, strict=True), key=lambda pair: pair[0].name != name)
    child = killed.child()
    killed.kill()
    eventually(lambda: gone(child), "the end of the worker's child")
    check(disturbed, id_, undisturbed, tmp_path)
    disturbed.idle()
    assert 0 < other.metric("study_inputs_total") - counted <= INPUTS
    killed.start()
    disturbed.ready()
