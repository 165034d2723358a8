"""What was accepted before an upgrade is computed after it, under the id that it was accepted with, and says which versions computed it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headscope.analysis.request import AnalysisRequest, versions
from headscope.jobs import ProgressReporter
from headscope.server.service import Service
from headscope.settings import Settings
from headscope.store import Stored
from headscope.studies.request import StudyRequest
from headscope.worker import engine, study_jobs
from headscope.worker.engine import AnalysisEngine
from headscope.worker.process import build_embedded
from tests.contract.job_databases import WORKER, the
from tests.support import studies
from tests.support.models import tiny_model

TEXT = AnalysisRequest(model="one", text="The cat sat.", lenses=["weights"])
# Three texts, in one chunk.
ROWS = StudyRequest(**studies.asked(3, model="one"))
BOTH = ROWS.model_copy(update={"against": StudyRequest(**studies.asked(3, against={"model": "two"})).against})
OLDER = {**versions(), "headscope": "0.0.9", "torch": "2.0.0"}
Upgraded = Callable[[dict[str, Any] | None], None]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of one shape."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("one", "two")):
        tiny_model(folder / name, seed=seed)
    return folder


@pytest.fixture
def service(tmp_path: Path, models: Path) -> Iterator[Service]:
    """A server without an engine."""
    made = Service(Settings(home=tmp_path / "home", model_dirs=(models,), hub="off"), build_embedded)
    yield made
    made.facts.close()


@pytest.fixture
def upgraded(monkeypatch: pytest.MonkeyPatch) -> Upgraded:
    """Make what runs a version that is given, or the present one."""

    def upgraded(given: dict[str, Any] | None) -> None:
        for module in ("analysis.request", "studies.request", "worker.engine", "worker.study_jobs"):
            name = f"headscope.{module}"
            monkeypatch.setattr(importlib.import_module(name), "versions", lambda: given or versions())

    return upgraded


def run(service: Service, most: int = 100) -> None:
    """Run queued jobs as the process of a worker does."""
    worker, reporter = AnalysisEngine(service.settings, service.facts), ProgressReporter(service.database)
    for _ in range(most):
        for job in service.database.claim(WORKER):
            problem = worker.run([job], reporter)[job.id]
            service.database.finish(job.id, job.run, "failed" if problem else "done", problem)


def result(service: Service, id_: str) -> Stored:
    """Return a result, whose job must be done."""
    assert the(service.database, id_).error is None
    stored = service.results.get(id_)
    assert stored is not None
    return stored


def changed_files(service: Service, monkeypatch: pytest.MonkeyPatch, name: str, folder: Path) -> None:
    """Change a model's files."""
    tiny_model(folder / name, seed=7)
    changed = service.settings.model_copy(update={"model_dirs": (folder, *service.settings.model_dirs)})
    monkeypatch.setattr(service, "settings", changed)


def test_an_analysis_outlives_an_upgrade(service: Service, upgraded: Upgraded) -> None:
    """It has the numbers of the version that ran it, which its document names. The same request is another analysis now."""
    upgraded(OLDER)
    _, [id_], _ = service.submit([TEXT])
    upgraded(None)
    run(service, 1)
    assert result(service, id_).document["versions"] == versions()
    _, [again], stored = service.submit([TEXT])
    assert again != id_
    assert not stored


def test_a_model_that_changed_is_refused(
    service: Service, upgraded: Upgraded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whichever version accepted the request."""
    upgraded(OLDER)
    _, [old], _ = service.submit([TEXT])
    upgraded(None)
    _, [new], _ = service.submit([TEXT])
    study, _ = service.studies.submit(ROWS)
    changed_files(service, monkeypatch, "one", tmp_path)
    run(service, 4)
    for id_, sentence in ((old, engine.CHANGED), (new, engine.CHANGED), (study, study_jobs.CHANGED)):
        error = the(service.database, id_).error
        assert error is not None
        assert (error["code"], error["detail"]) == ("model-corrupt", sentence)


def test_a_study_outlives_an_upgrade(service: Service, upgraded: Upgraded) -> None:
    """Its chunk is computed by the present version, and found by the study."""
    upgraded(OLDER)
    id_, _ = service.studies.submit(ROWS)
    upgraded(None)
    run(service, 2)
    document = result(service, id_).document
    assert document["inputs"] == 3
    assert document["versions"] == [{**versions(), "study_schema": study_jobs.SCHEMA}]
    assert service.results.usage()[0] == 1


@pytest.mark.parametrize("numbers", ["same", "other"])
def test_an_upgrade_in_the_middle_of_a_study(
    service: Service, upgraded: Upgraded, numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that an earlier version computed is kept, and the study names both; if its numbers had another meaning, it is computed again."""
    monkeypatch.setattr("headscope.studies.plan.INPUTS", 2)
    older = OLDER if numbers == "same" else {**OLDER, "schema": -1}
    upgraded(older)
    id_, _ = service.studies.submit(ROWS)
    run(service, 1)
    upgraded(None)
    run(service, 2)
    document, here = result(service, id_).document, {**versions(), "study_schema": study_jobs.SCHEMA}
    assert document["inputs"] == 3
    assert document["versions"] == ([{**here, **older}, here] if numbers == "same" else [here])


def test_two_models(service: Service, upgraded: Upgraded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A study of two models outlives an upgrade, too, and is refused if the second one has changed."""
    upgraded(OLDER)
    id_, _ = service.studies.submit(BOTH)
    upgraded(None)
    run(service, 2)
    assert result(service, id_).document["inputs"] == 3
    upgraded({**OLDER, "torch": "1.0.0"})
    again, _ = service.studies.submit(BOTH)
    upgraded(None)
    changed_files(service, monkeypatch, "two", tmp_path)
    run(service, 2)
    error = the(service.database, again).error
    assert error is not None
    assert error["detail"] == study_jobs.CHANGED
