"""How a server combines jobs and results."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.errors import Unknown
from headscope.jobs import JobKind, Work
from headscope.jobs.job import timed_out
from headscope.server.downloads import job_id as downloads_of
from headscope.server.service import Service
from headscope.settings import Settings
from headscope.store import Stored
from headscope.store.map_file import Corrupt
from headscope.worker.process import build_embedded

from .job_databases import IDS, claimed, running, status, the
from .test_store import name, write


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """A server's service without an engine."""
    return Service(Settings(home=tmp_path / "home"), build_embedded)


def test_what_can_be_read_is_forgotten_though_its_job_goes_on(service: Service) -> None:
    """A worker reports the end of a job shortly after it has published the result."""
    running(service.database, 1)
    write(service.results, 1)
    assert service.find(IDS[1])[1] is not None
    assert service.cancel(IDS[1]) is False
    assert status(service.database, IDS[1]) is None
    with pytest.raises(Unknown):
        service.find(name(1))


def test_damage_that_has_been_repaired(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a result is intact by the time that it would be quarantined, it is what is found."""
    running(service.database, 1)
    write(service.results, 1)
    read, damage = service.results.get, [Corrupt()]

    def read_damaged(id_: str) -> Stored | None:
        if damage:
            raise damage.pop()
        return read(id_)

    monkeypatch.setattr(service.results, "get", read_damaged)
    assert service.find_or_recompute(IDS[1])[1] is not None


@pytest.mark.parametrize("kind", ["analysis", "study", "effect", "head-scores"])
def test_damage_without_a_request(service: Service, kind: JobKind) -> None:
    """A result that cannot be computed again is unknown as what it was."""
    write(service.results, 1)
    (service.settings.home / "results" / "00" / IDS[1] / "manifest.json").write_bytes(b"cut")
    with pytest.raises(Unknown) as raised:
        service.find_or_recompute(IDS[1], kind)
    assert raised.value.code == f"unknown-{kind}"
    assert service.results.get(IDS[1]) is None


def test_others_keep_what_one_forgets(service: Service) -> None:
    running(service.database, 1, owner="ann")
    service.database.grant("bob", IDS[1])
    write(service.results, 1)
    assert service.cancel(IDS[1], "ann") is False
    assert not service.database.may_read(IDS[1], "ann")
    assert service.database.may_read(IDS[1], "bob")
    assert service.find(IDS[1])[1] is not None


def test_a_data_set_that_is_deleted_while_another_user_uploads_it(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there once the second user has an answer."""
    file = tmp_path / "cats.txt"
    file.write_text("The cat sat.\n")
    id_ = service.datasets.add(file, "cats.txt", None, "ann")["id"]
    grant = service.database.grant

    def delayed(owner: str, *ids: str) -> None:
        monkeypatch.setattr(service.database, "grant", grant)
        service.datasets.delete(id_, "ann")
        grant(owner, *ids)

    monkeypatch.setattr(service.database, "grant", delayed)
    assert service.datasets.add(file, "cats.txt", None, "bob")["id"] == id_
    assert [one["id"] for _, one in service.datasets.list("bob")] == [id_]


def test_only_those_who_asked_for_a_download_cancel_it(tmp_path: Path) -> None:
    """While it waits, and when it has failed."""
    service = Service(Settings(home=tmp_path / "home", hub="any"), build_embedded)
    downloads, id_ = service.downloads, downloads_of(service.catalog.locate("org/tiny", pointer=None))
    service.database.enqueue([Work(id_, "{}", owner="ann", kind="download")])
    assert not downloads.cancel("org/tiny", "bob")
    job = claimed(service.database)
    service.database.finish(id_, job.run, "failed", timed_out(900, "download").problem())
    assert "The download took longer than 900 s" in the(service.database, id_).error["detail"]
    assert not downloads.cancel("org/tiny", "bob")
    assert downloads.cancel("org/tiny", "ann")
    assert not downloads.cancel("org/tiny", "ann")


def test_what_is_under_way_is_cancelled_first(service: Service) -> None:
    running(service.database, 1)
    assert service.cancel(IDS[1]) is True
    assert status(service.database, IDS[1]) == "cancelled"
    assert service.cancel(IDS[1]) is False
    assert status(service.database, IDS[1]) is None
