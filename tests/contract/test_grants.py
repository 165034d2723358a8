"""Who may read an analysis, who wants it, and who lets it go: one computation for everybody who asked, as long as anybody wants it."""

from __future__ import annotations

import pytest

from headscope.jobs import JobDatabase
from tests.contract.records import IDS, accept, claimed, order, running, status, the, work

ONE = IDS[0]


def test_everybody_who_asked_may_read(record: JobDatabase) -> None:
    """And nobody else: neither for a job that there is, nor for one that there is not."""
    accept(record, 0, owner="ann")
    assert record.may_read(ONE, "ann")
    assert not record.may_read(ONE, "bob")
    assert not record.may_read(IDS[1], "ann")
    record.enqueue(work(0, owner="bob"))
    assert record.may_read(ONE, "bob")
    assert the(record, ONE).owner == "ann"


def test_a_stored_result_needs_no_job(record: JobDatabase) -> None:
    """Somebody who asks for what is stored already may read it, too."""
    record.grant(ONE, "ann")
    assert record.may_read(ONE, "ann")
    assert record.page(10, float("inf"), "ann") == []
    assert record.forget(ONE, "ann")
    assert not record.may_read(ONE, "ann")
    assert not record.forget(ONE, "ann")


@pytest.mark.parametrize("state", ["queued", "running"])
def test_cancelling_withdraws_ones_own_wish(record: JobDatabase, state: str) -> None:
    """A computation stops when nobody wants it any more; who is last sees that it was cancelled."""
    accept(record, 0, owner="ann")
    accept(record, 0, owner="bob")
    if state == "running":
        claimed(record)
    assert not record.cancel(ONE, "eve")
    assert record.cancel(ONE, "ann")
    assert not record.may_read(ONE, "ann")
    assert not record.cancel(ONE, "ann")
    job = the(record, ONE)
    assert (job.status, job.owner) == (state, "bob")
    assert record.waiting("ann") == 0
    assert record.waiting("bob") == (1 if state == "queued" else 0)
    assert record.cancel(ONE, "bob")
    assert status(record) == "cancelled"
    assert record.may_read(ONE, "bob")
    assert not record.cancel(ONE, "bob")


def test_everybodys_wish_can_be_cancelled(record: JobDatabase) -> None:
    """By the one user of a server without users."""
    accept(record, 0, owner="ann")
    accept(record, 0, owner="bob")
    assert record.cancel(ONE)
    assert status(record) == "cancelled"
    assert record.forget(ONE)
    assert not record.may_read(ONE, "ann")
    assert not record.may_read(ONE, "bob")
    assert not record.forget(ONE)


def test_whoever_stays_takes_the_turn(record: JobDatabase) -> None:
    """A job that its first owner gave up stands in the line of another who wants it."""
    accept(record, *range(5), owner="ann")
    record.enqueue(work(4, owner="bob"))
    assert record.place(the(record, f"{4:032x}")) == 4
    record.cancel(f"{4:032x}", "ann")
    assert record.place(the(record, f"{4:032x}")) == 1
    assert order(record) == [f"{number:032x}" for number in (0, 4, 1, 2, 3)]


def test_forgetting_withdraws_ones_own_grant(record: JobDatabase) -> None:
    """The result may go once nobody has a grant."""
    job = running(record, owner="ann")
    record.enqueue(work(0, owner="bob"))
    assert not record.forget(ONE, "ann")
    record.finish(ONE, job.run, "done")
    assert not record.forget(ONE, "eve")
    assert not record.forget(ONE, "ann")
    assert not record.may_read(ONE, "ann")
    assert record.may_read(ONE, "bob")
    assert (status(record), the(record, ONE).owner) == ("done", "bob")
    assert record.forget(ONE, "bob")
    assert record.get(ONE) is None
    assert record.statuses() == {}


def test_lists_show_ones_own(record: JobDatabase) -> None:
    """Newest first by when they were last asked for, each owner's own only."""
    accept(record, 0, 2, owner="ann")
    accept(record, 1, owner="bob")
    record.enqueue(work(0, owner="bob"))

    def listed(owner: str | None, limit: int = 10, before: float = float("inf")) -> list[str]:
        return [job.id for job in record.page(limit, before, owner)]

    assert listed("ann") == [IDS[2], IDS[0]]
    assert listed("bob") == [IDS[1], IDS[0]]
    assert listed("eve") == []
    assert listed(None) == [IDS[1], IDS[2], IDS[0]]
    assert listed("ann", before=the(record, IDS[2]).created) == [IDS[0]]
    assert listed("ann", limit=1) == [IDS[2]]
    record.cancel(ONE)
    accept(record, 0, owner="ann")
    assert listed("ann") == [IDS[0], IDS[2]]
    assert listed("bob") == [IDS[0], IDS[1]]


def test_a_share_key_opens_one_analysis(record: JobDatabase) -> None:
    """The same key each time, each owner's own, until it is taken back or the grant goes."""
    accept(record, 0, 1, owner="ann")
    record.enqueue(work(0, owner="bob"))
    key, theirs = record.share(ONE, "ann"), record.share(ONE, "bob")
    assert record.share(ONE, "ann") == key != theirs
    assert len(bytes.fromhex(key)) == 16
    assert record.shared(key) == record.shared(theirs) == ONE
    assert record.share(IDS[1], "ann") not in (key, theirs)
    assert record.unshare(ONE, "ann")
    assert not record.unshare(ONE, "ann")
    assert (record.shared(key), record.shared(theirs)) == (None, ONE)
    assert record.share(ONE, "ann") != key
    record.cancel(ONE, "bob")
    assert record.shared(theirs) is None
    assert record.shared("") is None


def test_grants_are_bounded(record: JobDatabase) -> None:
    """Of each owner the newest stay; those of others are not touched. The result of a dropped job stays readable."""
    for number in range(6):
        job = running(record, number, owner="ann")
        record.finish(job.id, job.run, "done")
    record.grant(ONE, "bob")
    key = record.share(ONE, "ann")
    record.trim(older_than=0.0)
    assert all(record.may_read(f"{number:032x}", "ann") for number in range(6))
    record.trim(most=4)
    assert [record.may_read(f"{number:032x}", "ann") for number in range(6)] == [False, False, True, True, True, True]
    assert record.shared(key) is None
    assert record.may_read(ONE, "bob")
