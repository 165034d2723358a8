"""Grants: one computation serves all owners, and continues while at least one of them has a grant."""

from __future__ import annotations

import pytest

from headscope.jobs import JobDatabase, Work
from tests.contract.job_databases import IDS, accept, claimed, order, running, status, the, work

ONE = IDS[0]


def test_everybody_who_asked_may_read(database: JobDatabase) -> None:
    """Only owners with a grant may read a job; a job that does not exist cannot be read."""
    accept(database, 0, owner="ann")
    assert database.may_read(ONE, "ann")
    assert not database.may_read(ONE, "bob")
    assert not database.may_read(IDS[1], "ann")
    database.enqueue(work(0, owner="bob"))
    assert database.may_read(ONE, "bob")
    assert the(database, ONE).owner == "ann"


def test_a_stored_result_needs_no_job(database: JobDatabase) -> None:
    """An owner may be granted a stored result without a job."""
    database.grant("ann", ONE)
    assert database.may_read(ONE, "ann")
    assert database.page(10, float("inf"), "ann") == []
    assert database.forget(ONE, "ann")
    assert not database.may_read(ONE, "ann")
    assert not database.forget(ONE, "ann")


@pytest.mark.parametrize("state", ["queued", "running"])
def test_cancelling_withdraws_ones_own_wish(database: JobDatabase, state: str) -> None:
    """A job is cancelled with the last grant; its last owner can see that it was cancelled."""
    accept(database, 0, owner="ann")
    accept(database, 0, owner="bob")
    if state == "running":
        claimed(database)
    assert not database.cancel(ONE, "eve")
    assert database.cancel(ONE, "ann")
    assert not database.may_read(ONE, "ann")
    assert not database.cancel(ONE, "ann")
    job = the(database, ONE)
    assert (job.status, job.owner) == (state, "bob")
    assert database.waiting("ann") == 0
    assert database.waiting("bob") == (1 if state == "queued" else 0)
    assert database.cancel(ONE, "bob")
    assert status(database) == "cancelled"
    assert database.may_read(ONE, "bob")
    assert not database.cancel(ONE, "bob")


def test_everybodys_wish_can_be_cancelled(database: JobDatabase) -> None:
    """On a server without tokens the user cancels for all owners."""
    accept(database, 0, owner="ann")
    accept(database, 0, owner="bob")
    assert database.cancel(ONE)
    assert status(database) == "cancelled"
    assert database.forget(ONE)
    assert not database.may_read(ONE, "ann")
    assert not database.may_read(ONE, "bob")
    assert not database.forget(ONE)


def test_whoever_stays_takes_the_turn(database: JobDatabase) -> None:
    """A job whose owner withdrew moves to the queue of another owner."""
    accept(database, *range(5), owner="ann")
    database.enqueue(work(4, owner="bob"))
    database.cancel(f"{4:032x}", "ann")
    assert order(database) == [f"{number:032x}" for number in (0, 4, 1, 2, 3)]


def test_a_study_changes_hands_with_its_chunks(database: JobDatabase) -> None:
    """The user who withdrew has an empty queue, and the one who stays has all of it."""
    for owner in ("ann", "bob"):
        chunks = [Work(f"{ONE}.{number}.x", "{}", owner=owner, kind="chunk") for number in range(3 * (owner == "ann"))]
        database.enqueue([*chunks, Work(ONE, "{}", owner=owner, kind="study")], batch=ONE, priority=1)
    assert database.cancel(ONE, "ann")
    assert (database.waiting("ann"), database.waiting("bob")) == (0, 4)


def test_forgetting_withdraws_ones_own_grant(database: JobDatabase) -> None:
    """The result may be deleted once no owner has a grant."""
    job = running(database, owner="ann")
    database.enqueue(work(0, owner="bob"))
    assert not database.forget(ONE, "ann")
    database.finish(ONE, job.run, "done")
    assert not database.forget(ONE, "eve")
    assert not database.forget(ONE, "ann")
    assert not database.may_read(ONE, "ann")
    assert database.may_read(ONE, "bob")
    assert (status(database), the(database, ONE).owner) == ("done", "bob")
    assert database.forget(ONE, "bob")
    assert database.get(ONE) is None
    assert database.statuses() == {}


def test_lists_show_ones_own(database: JobDatabase) -> None:
    """Lists contain an owner's own jobs, the most recently requested first."""
    accept(database, 0, 2, owner="ann")
    accept(database, 1, owner="bob")
    database.enqueue(work(0, owner="bob"))

    def listed(owner: str | None, limit: int = 10, before: float = float("inf")) -> list[str]:
        return [job.id for job in database.page(limit, before, owner)]

    assert listed("ann") == [IDS[2], IDS[0]]
    assert listed("bob") == [IDS[1], IDS[0]]
    assert listed("eve") == []
    assert listed(None) == [IDS[1], IDS[2], IDS[0]]
    assert listed("ann", before=the(database, IDS[2]).created) == [IDS[0]]
    assert listed("ann", limit=1) == [IDS[2]]
    database.cancel(ONE)
    accept(database, 0, owner="ann")
    assert listed("ann") == [IDS[0], IDS[2]]
    assert listed("bob") == [IDS[0], IDS[1]]


def test_a_share_key_opens_one_analysis(database: JobDatabase) -> None:
    """Each owner has one key, until it is revoked or the grant ends."""
    accept(database, 0, 1, owner="ann")
    database.enqueue(work(0, owner="bob"))
    key, theirs = database.share(ONE, "ann"), database.share(ONE, "bob")
    assert database.share(ONE, "ann") == key != theirs
    assert len(bytes.fromhex(key)) == 16
    assert database.shared(key) == database.shared(theirs) == ONE
    assert database.share(IDS[1], "ann") not in (key, theirs)
    assert database.unshare(ONE, "ann")
    assert not database.unshare(ONE, "ann")
    assert (database.shared(key), database.shared(theirs)) == (None, ONE)
    assert database.share(ONE, "ann") != key
    database.cancel(ONE, "bob")
    assert database.shared(theirs) is None
    assert database.shared("") is None


def test_grants_are_bounded(database: JobDatabase) -> None:
    """Each owner keeps the newest grants. The result of a removed job stays readable."""
    for number in range(6):
        job = running(database, number, owner="ann")
        database.finish(job.id, job.run, "done")
    database.grant("bob", ONE)
    key = database.share(ONE, "ann")
    database.trim(older_than=0.0)
    assert all(database.may_read(f"{number:032x}", "ann") for number in range(6))
    database.trim(most=4)
    assert [database.may_read(f"{number:032x}", "ann") for number in range(6)] == [False, False, True, True, True, True]
    assert database.shared(key) is None
    assert database.may_read(ONE, "bob")
    assert database.granted("ann") == {f"{number:032x}" for number in range(2, 6)}
    assert database.granted("bob") == {ONE}
