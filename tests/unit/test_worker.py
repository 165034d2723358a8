"""The engine of both deployments with several jobs at a time: real models from a folder, a real store, a real reporter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from headscope.analysis.request import AnalysisRequest
from headscope.database import Database, schema
from headscope.errors import Unknown
from headscope.jobs import Job, JobDatabase, ProgressReporter, Work, Worker
from headscope.models.catalog import Catalog
from headscope.settings import Settings
from headscope.store import Results
from headscope.worker import engine
from headscope.worker.engine import AnalysisEngine
from tests.support.metrics import counted

BERT = {"model": "bert", "lenses": ["weights", "effective"], "measures": ["entropy"]}
TEXTS = ["The cat sat.", "Sat the cat.", "The sat cat."]  # equally many tokens


@pytest.fixture
def settings(tmp_path: Path, models: Path) -> Settings:
    """Of a home of the test's own."""
    return Settings(home=tmp_path / "home", model_dirs=(models,), hub="off")


class Desk:
    """A worker's engine and reporter, with the job database and the store of its server."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        settings.home.mkdir(parents=True, exist_ok=True)
        self._facts = Database(settings.home / "headscope.db")
        schema.prepare(self._facts)
        self.database = JobDatabase(self._facts)
        self.store = Results.local(settings.home, settings.quota_bytes, self._facts)
        self.worker, self._reporter = AnalysisEngine(settings, self._facts), ProgressReporter(self.database)
        self._catalog, self._counted = Catalog(settings), self._counters()

    def job(self, **body: Any) -> Job:
        """Return a new job, as the worker claims it."""
        request = AnalysisRequest(**body)
        digest = self._catalog.locate(request.model).digest()
        return self.claim(request.key(digest), request.model_dump_json(), digest)

    def claim(self, id_: str, payload: str, model: str = "") -> Job:
        """Accept and claim a job."""
        self.database.enqueue([Work(id_, payload, model)])
        (job,) = self.database.claim(Worker("desk"))
        return job

    def run(self, *jobs: Job) -> list[str | None]:
        """Run jobs, and return for each None or the code of its problem."""
        problems = self.worker.run(jobs, self._reporter)
        return [None if (problem := problems[job.id]) is None else problem["code"] for job in jobs]

    def counted(self) -> dict[str, int]:
        """Loads and passes since the last time."""
        before, self._counted = self._counted, self._counters()
        return {name: int(self._counted[name] - before[name]) for name in before if self._counted[name] > before[name]}

    @staticmethod
    def _counters() -> dict[str, float]:
        return {name: counted(name) for name in ("model_loads", "forward_passes")}

    def close(self) -> None:
        """Close the connections."""
        self._facts.close()


@pytest.fixture
def desk(settings: Settings) -> Iterator[Desk]:
    """Of the test's own."""
    made = Desk(settings)
    yield made
    made.close()


def test_jobs_of_one_recipe_share_a_pass(desk: Desk, tmp_path: Path, models: Path) -> None:
    """Three texts of one length: one load, one pass, three results, each equal to that of a single job. Running them again computes nothing."""
    jobs = [desk.job(text=text, **BERT) for text in TEXTS]
    assert desk.run(*jobs) == [None] * 3
    assert desk.counted() == {"model_loads": 1, "forward_passes": 1}
    assert desk.run(*jobs) == [None] * 3
    assert desk.counted() == {}
    alone = Desk(Settings(home=tmp_path / "other", model_dirs=(models,), hub="off"))
    for job, text in zip(jobs, TEXTS, strict=True):
        assert alone.run(alone.job(text=text, **BERT)) == [None]
        ours, theirs = desk.store.get(job.id), alone.store.get(job.id)
        assert ours is not None
        assert theirs is not None
        assert {**ours.document, "timing_ms": 0} == {**theirs.document, "timing_ms": 0}
        assert ours.arrays.keys() == theirs.arrays.keys()
        for lens in BERT["lenses"]:
            every = slice(None)
            np.testing.assert_allclose(ours.maps(lens, every, every), theirs.maps(lens, every, every), atol=1e-5)
    assert alone.counted() == {"model_loads": 1, "forward_passes": 3}
    alone.close()


def test_what_only_the_index_has_is_computed(desk: Desk) -> None:
    """The index was unreachable when a result was removed: a job is done only if its result is in the store."""
    job = desk.job(text=TEXTS[0], **BERT)
    desk.store._index.add(job.id, 1, 10**9)
    assert desk.store.has(job.id)
    assert desk.run(job) == [None]
    assert desk.store.get(job.id) is not None


def test_every_job_has_its_own_end(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled job, one accepted for other files, one for a missing model, and one that is too long do not affect the others."""
    monkeypatch.setattr(engine, "QUIET_SECONDS", 0)  # a job that ends sooner never asks whether it is cancelled
    good = [desk.job(text=text, **BERT) for text in TEXTS[:2]]
    cancelled = desk.job(text=TEXTS[2], **BERT)
    long = desk.job(text="cat " * 600, **BERT)
    other = desk.claim("0" * 32, good[0].payload)
    absent = desk.claim("1" * 32, good[0].payload.replace('"bert"', '"gone"'))
    desk.database.cancel(cancelled.id)
    codes = desk.run(good[0], cancelled, long, other, absent, good[1])
    assert codes == [None, "cancelled", "too-many-tokens", "model-corrupt", "unknown-model", None]
    assert [desk.store.has(job.id) for job in (*good, cancelled, long)] == [True, True, False, False]
    assert desk.counted() == {"model_loads": 1, "forward_passes": 1}
    assert not list(desk.store.staging.iterdir())


def test_a_writer_begins_anew(desk: Desk) -> None:
    """Opened again, as after a lack of memory, a writer forgets what it had."""
    shapes, block = {"weights": (1, 2, 3, 3)}, np.ones((2, 3, 3), np.float32)
    with desk.store.writer("2" * 32) as writer:
        writer.open(shapes)
        writer.write("weights", 0, 0, block[:1] * 5)
        writer.open(shapes)
        writer.write("weights", 0, 0, block)
        writer.finish({"shapes": {"weights": [1, 2, 3, 3]}}, {})
    stored = desk.store.get("2" * 32)
    assert stored is not None
    assert (stored.maps("weights", slice(None), slice(None)) == block).all()


def test_a_model_stays_in_the_type_of_its_files(desk: Desk, models: Path) -> None:
    """Jobs in bfloat16 load weights that are stored in it without widening them; jobs in float32 load them again, widened."""
    folder = desk.settings.home / "models" / "narrow"
    transformers.AutoModel.from_pretrained(models / "bert", dtype=torch.bfloat16).save_pretrained(folder)
    asked = {"model": "narrow", "token_ids": [2, 5, 6, 3], "lenses": ["weights"], "measures": []}
    jobs = [desk.job(**asked, dtype=dtype) for dtype in ("bfloat16", "float32")]
    for job in jobs:
        assert desk.run(job) == [None]
        assert desk.counted() == {"model_loads": 1, "forward_passes": 1}
    located = Catalog(desk.settings).locate("narrow")
    loaded = [desk.worker.model(located, dtype=dtype).module.dtype for dtype in ("bfloat16", "float32")]
    assert loaded == [torch.bfloat16, torch.float32]
    assert desk.counted() == {}


@pytest.mark.parametrize(("warm_bytes", "loads"), [(2**32, 2), (1, 1)], ids=["all fit", "only the first"])
def test_models_loaded_in_advance(settings: Settings, warm_bytes: int, loads: int) -> None:
    """One after the other, each once: the first one in any case, others as long as none is evicted. A later job finds them; a wrong name is an error of its own."""
    changed = {"preload": ("bert", "nowhere", "gpt2"), "warm_bytes": warm_bytes}
    desk = Desk(settings.model_copy(update=changed))
    assert desk.worker.prewarm()
    assert desk.counted()["model_loads"] == 1
    with pytest.raises(Unknown):
        desk.worker.prewarm()
    assert [desk.worker.prewarm(), desk.worker.prewarm()] == [True, False]
    assert desk.run(desk.job(text=TEXTS[0], **BERT)) == [None]
    assert desk.counted() == {"forward_passes": 1} | ({"model_loads": 1} if loads == 2 else {})
    desk.close()
