"""The inputs of accepted work stay in the store until it has ended, and a request whose inputs do not fit is refused: in both deployments."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from headscope import stores
from headscope.errors import StorageFull, Unknown
from headscope.jobs import JobDatabase, Work
from headscope.server.job_queue import JobQueue
from headscope.server.service import Service
from headscope.settings import Settings
from headscope.studies.request import StudyRequest
from headscope.worker.process import build_embedded
from tests.contract.job_databases import IDS, Place, claimed, the
from tests.contract.test_store import write
from tests.support import studies

# Bytes of an input, and room for three of them.
SIZE, ROOM = 10_000, 35_000


def data(number: int) -> bytes:
    return random.Random(number).randbytes(SIZE)


class Desk:
    """The stores and the queue of a server."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.facts = settings, stores.open_database(settings)
        self.database = JobDatabase(self.facts)
        self.inputs, self.uploads = stores.inputs(settings, self.facts), stores.uploads(settings, self.facts)
        self.results = stores.results(settings, self.facts)
        self.queue = JobQueue(settings, self.results, self.inputs, self.database, lambda: None)

    def accept(self, work: Work) -> None:
        self.queue.enqueue([work], None)

    def fill(self, *numbers: int) -> None:
        """Store other inputs."""
        for number in numbers:
            self.inputs.put_bytes(data(number))


@pytest.fixture
def desk(place: Place, tmp_path: Path) -> Iterator[Desk]:
    """Of an embedded server, and of one of a cluster."""
    embedded = isinstance(place.where, Path)
    cluster = {"database_url": place.where, "redis_url": "redis://127.0.0.1:1", "store_url": str(tmp_path / "store")}
    made = Desk(Settings(home=tmp_path, quota_bytes=ROOM * stores.BLOB_SHARE, **({} if embedded else cluster)))
    yield made
    made.facts.close()


def payload(kind: str, name: str) -> dict[str, Any]:
    """What a server writes about a job that reads this blob."""
    image = {"model": "vit", "image": f"sha256:{name}"}
    return {"analysis": image, "effect": {"input": image}, "study": {"chunks": [["0" * 32, name, 1, 1]]}}[kind]


def reading(name: str, kind: Any = "analysis", id_: str = IDS[0]) -> Work:
    """Work that reads this blob."""
    return Work(id_, json.dumps(payload(kind, name)), kind=kind)


@pytest.mark.parametrize("kind", ["analysis", "effect", "study"])
def test_an_input_stays_until_its_job_has_ended(desk: Desk, kind: str) -> None:
    """Others are evicted, even if they were used later."""
    name = desk.inputs.put_bytes(data(0))
    desk.accept(reading(name, kind))
    desk.fill(*range(1, 6))
    assert desk.inputs.read(name) == data(0)
    job = claimed(desk.database)
    desk.fill(*range(6, 11))
    assert desk.inputs.read(name) == data(0)
    desk.inputs.tidy()
    assert desk.inputs.usage()[1] <= ROOM
    desk.database.finish(job.id, job.run, "done")
    desk.fill(*range(11, 15))
    assert desk.inputs.read(name) is None


def test_a_lens_stays_until_its_effect_has_ended(desk: Desk, tmp_path: Path) -> None:
    """It is an upload, which has room of its own."""
    (tmp_path / "file").write_bytes(data(0))
    desk.uploads.put(IDS[1], tmp_path / "file", {})
    desk.accept(Work(IDS[0], json.dumps({"request": {"jacobian_lens": IDS[1]}}), kind="effect"))
    for number in range(5):
        desk.uploads.put(f"{number + 2:032x}", tmp_path / "file", {})
    assert desk.uploads.read(IDS[1]) == data(0)


def test_an_input_without_room_is_refused(desk: Desk) -> None:
    """Everything in the store is needed: nothing is evicted, and nothing of the new input is left. There is room again once a job has ended."""
    names = [desk.inputs.put_bytes(data(number)) for number in range(3)]
    for name, id_ in zip(names, IDS, strict=False):
        desk.accept(reading(name, id_=id_))
    for _ in range(2):
        with pytest.raises(StorageFull, match="Try again once some have ended"):
            desk.inputs.put_bytes(data(3))
    assert desk.inputs.ids() == set(names)
    assert [desk.inputs.read(name) for name in names] == [data(number) for number in range(3)]
    assert desk.inputs.put_bytes(data(1)) == names[1]
    desk.database.cancel(IDS[0])
    assert desk.inputs.read(desk.inputs.put_bytes(data(3))) == data(3)


def test_an_input_that_is_refused_costs_no_other(desk: Desk) -> None:
    """What no job needs is not evicted for an input that does not fit even then."""
    needed, idle = desk.inputs.put_bytes(data(0)), desk.inputs.put_bytes(data(1))
    desk.accept(reading(needed))
    with pytest.raises(StorageFull):
        desk.inputs.put_bytes(data(2) * 3)
    assert desk.inputs.ids() == {needed, idle}


def test_what_was_evicted_before_it_was_accepted_is_refused(desk: Desk) -> None:
    """A request stores its inputs first: other requests may evict them before it is queued. Then nothing is."""
    name = desk.inputs.put_bytes(data(0))
    desk.fill(*range(1, 5))
    for work in (reading(name), reading(name, "study", IDS[1])):
        with pytest.raises(StorageFull):
            desk.accept(work)
    assert desk.database.statuses() == {}
    desk.accept(reading(desk.inputs.put_bytes(data(0))))
    assert desk.database.statuses() == {"queued": 1}


def test_what_is_stored_again_is_the_last_to_go(desk: Desk) -> None:
    """Inputs that were there before are used by the request that sends them again."""
    name = desk.inputs.put_bytes(data(0))
    desk.fill(1, 2)
    assert desk.inputs.put_bytes(data(0)) == name
    desk.fill(3, 4)
    desk.accept(reading(name))


def test_nothing_is_evicted_while_it_is_being_accepted(desk: Desk) -> None:
    """Another server that makes room waits until the request is accepted, and then sees that its input is needed."""
    name = desk.inputs.put_bytes(data(0))
    server = Desk(desk.settings)
    other = threading.Thread(target=server.fill, args=range(1, 5))

    def check(connection: sa.Connection) -> None:
        desk.inputs.require(connection, [name])
        other.start()
        other.join(0.2)
        assert other.is_alive()

    desk.database.enqueue([reading(name)], check=check)
    other.join()
    server.facts.close()
    assert desk.inputs.read(name) == data(0)


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_a_result_that_came_too_late_is_not_shown(desk: Desk, end: str) -> None:
    """A job was cancelled, or has failed, while its result was being published. Sent again, it is queued, and its worker finds the result."""
    assert desk.queue.submit("head-scores", IDS[1], {}, "model", None) == (IDS[1], False)
    job = claimed(desk.database)
    if end == "cancelled":
        desk.database.cancel(job.id)
    else:
        desk.database.finish(job.id, job.run, "failed", {"code": "worker-lost", "detail": "It died."})
    write(desk.results, 1)
    assert not desk.results.has(IDS[1])
    assert desk.results.exists(IDS[1])
    assert desk.queue.submit("head-scores", IDS[1], {}, "model", None) == (IDS[1], False)
    again = claimed(desk.database)
    assert desk.database.finish(again.id, again.run, "done")
    assert desk.queue.submit("head-scores", IDS[1], {}, "model", None) == (IDS[1], True)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """A server without an engine, and with room for few inputs."""
    return Service(Settings(home=tmp_path / "home", hub="off", quota_bytes=80 * SIZE), build_embedded)


def test_a_study_without_room_for_its_rows_is_refused(service: Service) -> None:
    """It is not accepted without the rows that its own others have evicted."""
    with pytest.raises(StorageFull):
        service.studies.submit(StudyRequest(**studies.asked(1000, model="minilm")))
    assert service.database.statuses() == {}


def test_a_damaged_study_whose_rows_are_gone_is_unknown(service: Service) -> None:
    """It cannot be computed again, and its reader is told to send it again."""
    id_, _ = service.studies.submit(StudyRequest(**studies.asked(20, model="minilm")))
    (blob,) = stores.inputs_of("study", the(service.database, id_).payload)
    job = claimed(service.database)
    service.database.finish(job.id, job.run, "done")
    study = claimed(service.database)
    service.database.finish(study.id, study.run, "done")
    with service.results.writer(id_) as writer:
        writer.finish({"kind_of": "study"}, {})
    (service.settings.home / "results" / id_[:2] / id_ / "manifest.json").write_bytes(b"cut")
    service.inputs.delete(blob)
    with pytest.raises(Unknown, match="Send the request again"):
        service.find_or_recompute(id_, "study")
    assert service.database.statuses() == {"done": 1}
