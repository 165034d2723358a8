"""A study and its chunks, in both job databases."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headscope.jobs import Job, JobDatabase, Work, Worker
from headscope.jobs.job import Run
from tests.contract.job_databases import IDS, WORKER, accept, claimed, running, the
from tests.support.extent import extent

STUDY = IDS[0]
CHUNKS = [f"{STUDY}.{number}.content" for number in range(3)]


def study(database: JobDatabase, *, owner: str = "local") -> None:
    """Enqueue a study of three chunks."""
    chunks = [Work(id_, "{}", tokens=10 + number, owner=owner, kind="chunk") for number, id_ in enumerate(CHUNKS)]
    database.enqueue([*chunks, Work(STUDY, "{}", owner=owner, kind="study")], batch=STUDY, priority=1)


def test_chunks_go_first_and_alone_and_single_analyses_before_them(database: JobDatabase) -> None:
    """Chunks never share a forward pass, so a new analysis waits for one chunk at most."""
    study(database)
    many = Worker("one", most_tokens=1000)
    assert claimed(database, many).id == CHUNKS[0]
    accept(database, 1)
    assert [claimed(database, many).id for _ in range(4)] == [IDS[1], *CHUNKS[1:], STUDY]


def test_two_users_take_turns(database: JobDatabase) -> None:
    """A study is many jobs of one user; another user's batch takes turns with it."""
    study(database, owner="anna")
    accept(database, 1, 2, owner="bert", priority=1, batch="other")
    assert [claimed(database).id for _ in range(4)] == [CHUNKS[0], IDS[1], CHUNKS[1], IDS[2]]


def test_only_studies_are_listed_and_granted(database: JobDatabase) -> None:
    """Lists contain analyses or studies but no chunks, and no user has a grant of a chunk."""
    study(database, owner="anna")
    accept(database, 1, owner="anna")
    for owner in (None, "anna"):
        assert [job.id for job in database.page(10, float("inf"), owner)] == [IDS[1]]
        assert [job.id for job in database.page(10, float("inf"), owner, "study")] == [STUDY]
    assert database.page(10, float("inf"), "bert", "study") == []
    assert database.may_read(STUDY, "anna")
    assert not database.may_read(CHUNKS[0], "anna")
    assert the(database, STUDY).kind == the(database, STUDY).work.kind == "study"


def test_the_change_of_a_chunk_is_one_of_its_study(database: JobDatabase) -> None:
    """Every change of a chunk is a new version of its study."""
    study(database)

    def changed(change: Callable[[], object]) -> set[str]:
        ids = [STUDY, *CHUNKS]
        before = database.versions(ids)
        assert change()
        after = database.versions(ids)
        assert all(after[id_] >= before[id_] for id_ in ids)
        return {id_ for id_ in ids if after[id_] != before[id_]}

    jobs: list[Job] = []
    for chunk in CHUNKS[:2]:
        assert changed(lambda: jobs.append(claimed(database)) is None) == {STUDY, chunk}
    first, second = jobs
    assert first.run != second.run
    assert changed(lambda: database.progress(first.id, first.run, 0.5, "forward", "1 of 2 inputs")) == {STUDY, first.id}
    assert changed(lambda: database.finish(first.id, first.run, "done")) == {STUDY, first.id}
    assert changed(lambda: database.requeue(second.id, second.run, "again")) == {STUDY, second.id}
    assert the(database, STUDY).status == "queued"


def test_chunk_states(database: JobDatabase) -> None:
    """The progress of each chunk."""
    study(database)
    job = claimed(database)
    assert database.progress(job.id, job.run, 0.25, "forward", "64 of 256 inputs")
    parts = {part.id: part for part in database.chunks(STUDY)}
    assert set(parts) == set(CHUNKS)
    begun, waiting = parts[CHUNKS[0]], parts[CHUNKS[1]]
    assert (begun.status, begun.fraction, begun.stage, begun.detail) == ("running", 0.25, "forward", "64 of 256 inputs")
    assert begun.started is not None
    assert (waiting.status, waiting.tokens, waiting.started, waiting.finished) == ("queued", 11, None, None)
    assert database.finish(job.id, job.run, "done")
    done = next(part for part in database.chunks(STUDY) if part.id == CHUNKS[0])
    assert done.finished is not None
    assert done.finished >= (done.started or 0) > 0


def test_with_the_end_of_a_study_its_chunks_are_gone(database: JobDatabase) -> None:
    """Queued and ended chunks are removed, and none is counted as queued."""
    study(database)
    for _ in CHUNKS:
        job = claimed(database)
        database.finish(job.id, job.run, "failed" if job.id == CHUNKS[1] else "done")
    last = claimed(database)
    assert database.finish(last.id, last.run, "done")
    assert database.chunks(STUDY) == []
    assert database.get_many(CHUNKS) == {}
    assert database.statuses() == {"done": 1}
    assert database.waiting() == 0


def test_cancelling_a_study_frees_its_workers(database: JobDatabase) -> None:
    """A worker running a chunk learns of it with its next report; or with its next heartbeat."""
    study(database)
    job = claimed(database)
    assert database.cancel(STUDY)
    assert not database.progress(job.id, job.run, 0.5, "forward", "")
    assert database.claim(WORKER) == []
    assert database.statuses() == {"cancelled": 1}
    assert database.heartbeat(WORKER, [Run(job.id, job.run)]) == {(job.id, job.run)}
    assert not database.finish(job.id, job.run, "done")


def test_a_study_that_failed_can_be_sent_again(database: JobDatabase) -> None:
    """All of its chunks run again; a study with several owners continues when one of them withdraws."""
    study(database, owner="anna")
    for _ in CHUNKS:
        job = claimed(database)
        database.finish(job.id, job.run, "done")
    last = claimed(database)
    database.finish(last.id, last.run, "failed", {"code": "internal", "detail": "."})
    study(database, owner="anna")
    assert len(database.chunks(STUDY)) == 3
    database.enqueue([Work(STUDY, "{}", owner="bert", kind="study")], batch=STUDY, priority=1)
    assert database.cancel(STUDY, "anna")
    assert len(database.chunks(STUDY)) == 3
    assert database.cancel(STUDY, "bert")
    assert database.chunks(STUDY) == []


def test_chunks_of_a_lost_worker_are_done_by_another(database: JobDatabase) -> None:
    """Chunks are requeued like any job."""
    study(database)
    lost = claimed(database)
    assert [job.id for job in database.held(WORKER.name)] == [lost.id]
    assert database.requeue(lost.id, lost.run, "again")
    assert claimed(database, Worker("two")).id == lost.id


def test_an_analysis_has_no_chunks(database: JobDatabase) -> None:
    """Neither has a batch."""
    running(database, 1, batch=STUDY)
    assert database.chunks(STUDY) == []
    assert database.chunks(IDS[1]) == []


def test_a_study_is_cancelled_while_it_is_sent(database: JobDatabase) -> None:
    """Transactions lock a study before its chunks, so that neither is ended by the database."""
    here = [WORKER]
    with ThreadPoolExecutor(2) as threads:
        for _ in range(extent(50, 20)):
            study(database)
            sent = threads.submit(database.choose, here)
            assert threads.submit(database.cancel, STUDY).result()
            database.unsend([message.task for message in sent.result()])
