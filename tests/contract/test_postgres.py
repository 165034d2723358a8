"""The cluster's database while it is killed, hangs, refuses, or belongs to another version; and its cost with a full queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
import sqlalchemy as sa

from headscope.database import Database, schema
from headscope.database.tables import jobs
from headscope.errors import DatabaseUnavailable, HeadscopeError, StorageFull
from headscope.jobs import JobDatabase, Work, Worker
from tests.contract.job_databases import IDS, PROBLEM, WORKER, accept, claimed, order, prepare, running, status, work
from tests.support.compose import database_server
from tests.support.extent import extent
from tests.support.postgres import Postgres
from tests.support.server import eventually


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server that every test leaves running."""
    with database_server("-c", "fsync=off") as running:
        yield running


@pytest.fixture
def url(server: Postgres) -> str:
    """The URL of an empty database."""
    return server.create()


@pytest.fixture
def database(url: str) -> Iterator[JobDatabase]:
    """An empty job database."""
    prepare(url)
    opened = JobDatabase(Database(url))
    yield opened
    opened.close()


def back(database: JobDatabase) -> bool:
    """Return whether the job database responds."""
    try:
        return database.now() > 0
    except DatabaseUnavailable:
        return False


def test_what_is_accepted_is_durable(server: Postgres, database: JobDatabase) -> None:
    """The server is killed during many submissions: every acknowledged one survives, complete."""
    accepted: list[str] = []
    refused = threading.Event()

    def submit(thread: int) -> None:
        for number in range(thread * 10_000, (thread + 1) * 10_000):
            try:
                database.enqueue(work(number, owner=f"u{thread}"))
            except DatabaseUnavailable:
                refused.set()
                return
            accepted.append(f"{number:032x}")

    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(submit, thread) for thread in range(4)]
        eventually(lambda: len(accepted) >= 100, "submissions")
        server.kill()
        for future in futures:
            future.result()
    assert refused.is_set()
    server.start()
    eventually(lambda: back(database), "the database")
    found = database.get_many(accepted)
    assert len(found) == len(accepted) >= 100
    assert all(database.may_read(job.id, job.owner) for job in found.values())
    assert set(accepted) <= set(order(database))


def test_a_server_that_hangs_is_given_up(server: Postgres, database: JobDatabase) -> None:
    """A request fails within two seconds while the server hangs, and works again afterwards."""
    accept(database, 0)
    server.pause()
    try:
        since = time.monotonic()
        for ask in (lambda: database.get(IDS[0]), lambda: database.enqueue(work(1)), lambda: database.waiting()):
            with pytest.raises(DatabaseUnavailable):
                ask()
        assert time.monotonic() - since < 5  # for all three; a statement alone would wait for ever
    finally:
        server.resume()
    eventually(lambda: back(database), "the database")
    assert claimed(database).id == IDS[0]


def test_a_server_that_restarts(server: Postgres, database: JobDatabase) -> None:
    """Connections are lost but data is not: runs continue, at the first attempt after the restart."""
    job = running(database)
    server.kill()
    with pytest.raises(DatabaseUnavailable):
        database.progress(job.id, job.run, 0.5, "forward", "")
    server.start()
    assert database.progress(job.id, job.run, 0.5, "forward", "")
    assert database.finish(job.id, job.run, "done")


def test_a_server_that_cannot_write(server: Postgres, database: JobDatabase) -> None:
    """A server that cannot write its log ends, which is no error of a request. It has everything that it accepted."""
    accept(database, 0)
    with server.full(), pytest.raises((DatabaseUnavailable, StorageFull)):
        accept(database, 1)

    def is_back() -> bool:
        if server.process.poll() is not None:
            server.restart()
        return back(database)

    eventually(is_back, "the database")
    assert status(database) == "queued"


def test_a_server_that_refuses(server: Postgres, url: str, database: JobDatabase) -> None:
    """Writes to a standby, a wrong password and a missing database are one clear error, not one of a request."""
    accept(database, 0)
    name = url.rpartition("/")[2]
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    database.close()
    assert database.waiting() == 1
    with pytest.raises(DatabaseUnavailable):
        accept(database, 1)
    for wrong in (url.replace(":ccc", ":wrong"), f"{url}_absent"):
        with pytest.raises(DatabaseUnavailable):
            JobDatabase(Database(wrong)).waiting()


def test_a_transaction_that_stands_still_blocks_others_for_seconds_only(
    server: Postgres, url: str, database: JobDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends a transaction whose process has been stopped, and so releases its locks."""
    monkeypatch.setattr("headscope.database.postgresql.OPTIONS", "-c idle_in_transaction_session_timeout=1s")
    accept(database, 0)
    stopped = Database(url)

    def stand_still() -> None:
        with stopped.change() as connection:
            stopped.take_turn(connection, "headscope queue")
            eventually(lambda: attempt(lambda: database.claim(WORKER)), "a claim")
            connection.execute(sa.select(jobs.c.id))

    with pytest.raises(DatabaseUnavailable):
        stand_still()
    stopped.close()
    assert status(database) == "running"


def test_a_lock_is_not_silence(url: str, database: JobDatabase) -> None:
    """A change that waits too long for a lock fails; the server has answered, so a new connection works at once."""
    accept(database, 0)
    with psycopg.connect(url) as holder:
        holder.execute("SELECT FROM jobs FOR UPDATE")
        with pytest.raises(DatabaseUnavailable):
            database.cancel(IDS[0])
        database.close()
        assert status(database) == "queued"
    assert database.cancel(IDS[0])


def test_a_request_that_arrives_while_another_user_cancels(url: str, database: JobDatabase) -> None:
    """The cancellation waits until the request is accepted, and then sees that another user wants the analysis. The worker waits for neither."""
    job = running(database, owner="anna")
    blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with (
        psycopg.connect(url) as holder,
        psycopg.connect(url, autocommit=True) as watcher,
        ThreadPoolExecutor(2) as threads,
    ):

        def waiting(number: int) -> bool:
            return watcher.execute(blocked).fetchone() == (number,)

        holder.execute("LOCK TABLE grants IN EXCLUSIVE MODE")  # which lets others read
        accepted = threads.submit(accept, database, 0, owner="bert")
        eventually(lambda: waiting(1), "the request")
        cancelled = threads.submit(database.cancel, job.id, "anna")
        eventually(lambda: cancelled.done() or waiting(2), "the cancellation")
        assert database.progress(job.id, job.run, 0.5, "forward", "")
        holder.commit()
        accepted.result()
        assert cancelled.result()
    assert status(database) == "running"
    assert database.may_read(job.id, "bert")
    assert not database.may_read(job.id, "anna")
    assert database.finish(job.id, job.run, "done")


def test_the_same_batch_is_sent_again_by_many(database: JobDatabase) -> None:
    """While its jobs run and end: transactions lock rows in an order in which none waits for another one that waits for it."""

    def send(user: int) -> None:
        for _ in range(20):
            database.enqueue(work(*range(8), owner=f"user-{user}"))

    with ThreadPoolExecutor(5) as threads:
        senders = [threads.submit(send, user) for user in range(4)]
        while not all(sender.done() for sender in senders):
            for job in database.claim(WORKER):
                database.finish(job.id, job.run, "failed", PROBLEM)
        for sender in senders:
            sender.result()


def attempt(call: Callable[[], object]) -> bool:
    """Return whether a call succeeds."""
    try:
        return bool(call())
    except DatabaseUnavailable:
        return False


def test_two_servers_create_the_tables_once(url: str) -> None:
    """Servers that start together on an empty database do not disturb each other."""
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(prepare, [url] * 4))
    database = JobDatabase(Database(url))
    accept(database, 0)
    assert order(database) == [IDS[0]]
    database.close()


def test_another_version_is_refused(url: str) -> None:
    """A server does not start on the tables of another version, or of another program; `upgrade` brings older ones up to date."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE other (x int)")
        with pytest.raises(HeadscopeError, match="another program"):
            prepare(url)
        connection.execute("DROP TABLE other; CREATE TABLE alembic_version (version_num VARCHAR(32))")
        connection.execute("INSERT INTO alembic_version VALUES ('0000')")
        with pytest.raises(HeadscopeError, match="headscope database upgrade"):
            prepare(url)
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        database = Database(url)
        for ask in (schema.prepare, schema.upgrade):
            with pytest.raises(HeadscopeError, match="newer version"):
                ask(database)
        database.close()


def test_a_process_has_one_pool(url: str) -> None:
    """Reads, changes and reports use the same connections; only reports do not wait for the disk."""
    database = Database(url, patient=True)
    own = "SELECT count(*), current_setting('synchronous_commit') FROM pg_stat_activity WHERE datname = current_database()"
    waits = []
    for kind in ("report", "change", "promise"):
        with database.change(kind) as connection:
            waits.append(tuple(connection.exec_driver_sql(own).one()))
    with database.read() as connection:
        waits.append(tuple(connection.exec_driver_sql(own).one()))
    database.close()
    assert waits == [(1, "off"), (1, "on"), (1, "on"), (1, "on")]


def test_a_full_queue_costs_no_more(server: Postgres, database: JobDatabase) -> None:
    """A claim reads no more of the tables with 5,000 jobs of 50 owners than with 500; in `make test` with 2,500."""

    def fill(low: int, high: int) -> None:
        for number in range(50):
            numbers = range(100 * number + low, 100 * number + high)
            database.enqueue(Work(f"{one:032x}", "{}", owner=f"user-{number}") for one in numbers)
        with database._database.change() as connection:
            connection.exec_driver_sql("ANALYZE jobs, owners")

    def cost() -> int:
        """Return the number of statements of a claim."""
        statements: list[object] = []
        count = lambda *arguments: statements.append(arguments)  # noqa: E731
        sa.event.listen(sa.Engine, "before_cursor_execute", count)
        assert len(database.claim(Worker("w"))) == 1
        sa.event.remove(sa.Engine, "before_cursor_execute", count)
        return len(statements)

    def plan() -> str:
        query = "EXPLAIN SELECT id FROM jobs WHERE status = 'queued' AND owner = 'user-1' ORDER BY priority, created, id LIMIT 1"
        with database._database.read() as connection:
            return "".join(connection.exec_driver_sql(query).scalars())

    fill(0, 10)
    few = cost()
    fill(10, extent(100, 50))
    assert cost() == few
    assert "jobs_queue" in plan()
    assert "Sort" not in plan()


def test_a_follower_outlives_what_a_crash_undoes(server: Postgres, database: JobDatabase) -> None:
    """The crash of the database undoes reports of progress; who has seen them sees the end, too."""
    job = running(database)
    for step in range(50):
        assert database.progress(job.id, job.run, step / 50, "forward", "")
    seen = database.versions(IDS)[job.id]
    with database._database.change() as connection:  # as if the last reports had not reached the disk
        connection.execute(jobs.update().values(version=seen - 20))
    assert database.finish(job.id, job.run, "done")
    assert database.versions(IDS)[job.id] > seen
