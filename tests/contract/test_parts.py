"""Both records: a study and the chunks it consists of."""

from __future__ import annotations

from headscope.jobs import JobDatabase, Work, Worker
from tests.contract.records import IDS, WORKER, accept, claimed, running, the

STUDY = IDS[0]
CHUNKS = [f"{STUDY}.{number}.content" for number in range(3)]


def study(record: JobDatabase, *, owner: str = "local") -> None:
    """A study of three chunks, accepted."""
    chunks = [Work(id_, "{}", tokens=10 + number, owner=owner, kind="chunk") for number, id_ in enumerate(CHUNKS)]
    record.enqueue([*chunks, Work(STUDY, "{}", owner=owner, kind="study")], batch=STUDY, priority=1)


def test_chunks_go_first_and_alone_and_single_analyses_before_them(record: JobDatabase) -> None:
    """Though they would fit into one pass; whoever sends an analysis meanwhile waits for one chunk at most."""
    study(record)
    many = Worker("one", most_tokens=1000)
    assert claimed(record, many).id == CHUNKS[0]
    accept(record, 1)
    assert [claimed(record, many).id for _ in range(4)] == [IDS[1], *CHUNKS[1:], STUDY]


def test_two_users_take_turns(record: JobDatabase) -> None:
    """A study is many jobs of one user; another one's batch goes on beside it."""
    study(record, owner="anna")
    accept(record, 1, 2, owner="bert", priority=1, batch="other")
    assert [claimed(record).id for _ in range(4)] == [CHUNKS[0], IDS[1], CHUNKS[1], IDS[2]]


def test_only_studies_are_listed_and_granted(record: JobDatabase) -> None:
    """Lists show analyses or studies, and chunks nowhere; nobody may read a chunk."""
    study(record, owner="anna")
    accept(record, 1, owner="anna")
    for owner in (None, "anna"):
        assert [job.id for job in record.page(10, float("inf"), owner)] == [IDS[1]]
        assert [job.id for job in record.page(10, float("inf"), owner, "study")] == [STUDY]
    assert record.page(10, float("inf"), "bert", "study") == []
    assert record.may_read(STUDY, "anna")
    assert not record.may_read(CHUNKS[0], "anna")
    assert the(record, STUDY).kind == the(record, STUDY).work.kind == "study"


def test_the_change_of_a_chunk_is_one_of_its_study(record: JobDatabase) -> None:
    """Whoever follows the study hears of it; versions stay in order, and no run has the version of another."""
    study(record)
    _, before = record.changed_since(record.newest())
    assert before == []
    version = record.newest()
    first, second = claimed(record), claimed(record)
    assert first.run != second.run
    assert record.progress(first.id, first.run, 0.5, "forward", "1 of 2 inputs")
    seen, changed = record.changed_since(version)
    assert changed is not None
    assert set(changed) == {STUDY, first.id, second.id}
    assert the(record, STUDY).version > the(record, first.id).version > version
    assert record.finish(first.id, first.run, "done")
    assert STUDY in (record.changed_since(seen)[1] or [])
    assert the(record, STUDY).status == "queued"


def test_parts(record: JobDatabase) -> None:
    """How far each chunk is."""
    study(record)
    job = claimed(record)
    assert record.progress(job.id, job.run, 0.25, "forward", "64 of 256 inputs")
    parts = {part.id: part for part in record.parts(STUDY)}
    assert set(parts) == set(CHUNKS)
    begun, waiting = parts[CHUNKS[0]], parts[CHUNKS[1]]
    assert (begun.status, begun.fraction, begun.stage, begun.detail) == ("running", 0.25, "forward", "64 of 256 inputs")
    assert begun.started is not None
    assert (waiting.status, waiting.tokens, waiting.started, waiting.finished) == ("queued", 11, None, None)
    assert record.finish(job.id, job.run, "done")
    done = next(part for part in record.parts(STUDY) if part.id == CHUNKS[0])
    assert done.finished is not None
    assert done.finished >= (done.started or 0) > 0


def test_with_the_end_of_a_study_its_chunks_are_gone(record: JobDatabase) -> None:
    """Those that wait and those that have ended; and there is nothing left that might count as waiting."""
    study(record)
    for _ in CHUNKS:
        job = claimed(record)
        record.finish(job.id, job.run, "failed" if job.id == CHUNKS[1] else "done")
    last = claimed(record)
    assert record.finish(last.id, last.run, "done")
    assert record.parts(STUDY) == []
    assert record.several(CHUNKS) == {}
    assert record.statuses() == {"done": 1}
    assert record.waiting() == 0


def test_cancelling_a_study_frees_its_workers(record: JobDatabase) -> None:
    """A worker at a chunk hears of it at its next word; one that does not heed it is known."""
    study(record)
    job = claimed(record)
    assert record.cancel(STUDY)
    assert not record.progress(job.id, job.run, 0.5, "forward", "")
    assert record.claim(WORKER) == []
    assert record.statuses() == {"cancelled": 1}
    assert [(run.id, run.worker) for run in record.unheeded(-1.0)] == [(job.id, WORKER.name)]
    assert not record.finish(job.id, job.run, "done")
    assert record.unheeded(-1.0) == []


def test_a_study_that_failed_can_be_sent_again(record: JobDatabase) -> None:
    """With all of its chunks; and one that others want, too, goes on when one of them withdraws."""
    study(record, owner="anna")
    for _ in CHUNKS:
        job = claimed(record)
        record.finish(job.id, job.run, "done")
    last = claimed(record)
    record.finish(last.id, last.run, "failed", {"code": "internal", "detail": "."})
    study(record, owner="anna")
    assert len(record.parts(STUDY)) == 3
    record.enqueue([Work(STUDY, "{}", owner="bert", kind="study")], batch=STUDY, priority=1)
    assert record.cancel(STUDY, "anna")
    assert len(record.parts(STUDY)) == 3
    assert record.cancel(STUDY, "bert")
    assert record.parts(STUDY) == []


def test_chunks_of_a_lost_worker_are_done_by_another(record: JobDatabase) -> None:
    """As any job."""
    study(record)
    lost = claimed(record)
    assert [job.id for job in record.lost()] == [lost.id]
    assert record.requeue(lost.id, lost.run, "again")
    assert claimed(record, Worker("two")).id == lost.id


def test_an_analysis_has_no_parts(record: JobDatabase) -> None:
    """Nor does a batch have."""
    running(record, 1, batch=STUDY)
    assert record.parts(STUDY) == []
    assert record.parts(IDS[1]) == []
