"""A shared store without its database or object store: results are read if possible, calls fail early, and nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headscope.errors import StoreUnavailable
from headscope.store import Maintenance, index, maintenance, remote
from tests.contract.test_store import check, forget, name, write
from tests.support.compose import database_server
from tests.support.extent import mostly_long
from tests.support.postgres import Postgres
from tests.support.server import eventually
from tests.support.stores import Place, new_place, object_store


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL that may be killed."""
    with database_server() as running:
        yield running


@pytest.fixture(scope="module")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """An object store."""
    with object_store(tmp_path_factory.mktemp("buckets")) as running:
        yield running


@pytest.fixture
def mortal(buckets: subprocess.Popen[bytes], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An object store that may be killed, in place of the shared one."""
    with object_store(tmp_path) as running:
        yield running


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store."""
    return new_place(request.param, request, tmp_path)


@pytest.mark.parametrize(
    ("how", "place"),
    [
        ("killed", "folder"),
        pytest.param("stopped", "bucket", marks=pytest.mark.long),
        pytest.param("killed", "bucket", marks=pytest.mark.long),
        pytest.param("stopped", "folder", marks=pytest.mark.long),
    ],
    indirect=["place"],
)
def test_without_the_database_results_are_read_and_written(
    place: Place, postgres: Postgres, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the index only the first call is delayed. Results written without it are indexed with the next one."""
    results = place.open()
    write(results, 1)
    results.tidy()
    postgres.kill(signal.SIGTERM) if how == "killed" else postgres.pause()
    monkeypatch.setattr(index, "PAUSE_SECONDS", 1000)
    write(results, 2)
    for number in (1, 2):
        check(results, number)
        assert results.has(name(number))
    assert not results.has(name(3))
    assert results.get(name(3)) is None
    results.tidy()
    assert sum("pausing for 1000 s" in message for message in caplog.messages) == 1
    postgres.start() if how == "killed" else postgres.resume()
    monkeypatch.setattr(index, "PAUSE_SECONDS", 0)
    results._index._retry_at = 0
    # Reads and changes have connections of their own, and new ones are refused for a moment after the server was silent.
    eventually(lambda: results._index._change(lambda *_: True), "the index")
    write(results, 4)
    assert results.usage()[0] == 3
    for number in (1, 2, 4):
        check(place.open(), number)


@pytest.mark.parametrize("place", mostly_long(["folder", "bucket"], "folder"), indirect=True)
def test_an_emptied_database(place: Place, postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running servers rebuild the index, one of them at a time."""
    monkeypatch.setattr(maintenance, "TIDY_SECONDS", 0.02)
    servers = [place.open() for _ in range(3)]
    keepers = [Maintenance(results) for results in servers]
    for number in (1, 2):
        write(servers[0], number)
    usage = servers[0].usage()
    for keeper in keepers:
        keeper.start()
    try:
        for _ in range(3):
            forget(place)
            assert servers[1].has(name(1))
            eventually(lambda: servers[2].usage() == usage, "the index")
    finally:
        for keeper in keepers:
            keeper.stop()
        for thread in threading.enumerate():
            if thread.name == "maintenance":  # it may be using a connection, which has to be closed
                thread.join()
    check(servers[2], 2)


@pytest.mark.parametrize("place", mostly_long(["folder", "bucket"], "folder"), indirect=True)
def test_what_others_removed_is_not_entered_late(
    place: Place, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that was written without the index and removed by another process is not indexed."""
    monkeypatch.setattr(index, "PAUSE_SECONDS", 0)
    results, others = place.open(), place.open()
    postgres.kill(signal.SIGTERM)
    for number in (1, 2):
        write(results, number)
    postgres.start()
    assert others.delete(name(1))
    write(results, 3)
    assert (results.has(name(1)), results.has(name(2)), results.usage()[0]) == (False, True, 2)


@pytest.mark.parametrize("place", mostly_long(["folder", "bucket"], "folder"), indirect=True)
def test_what_was_removed_leaves_the_index_late(
    place: Place, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that was removed without the index leaves it with the next call of the same process."""
    monkeypatch.setattr(index, "PAUSE_SECONDS", 0)
    results, others = place.open(), place.open()
    for number in (1, 2):
        write(results, number)
    postgres.kill(signal.SIGTERM)
    assert results.delete(name(1))
    postgres.start()
    assert (others.has(name(1)), others.exists(name(1))) == (True, False)
    assert results.has(name(2))
    assert (others.has(name(1)), others.usage()[0]) == (False, 1)


@pytest.mark.parametrize("place", ["bucket"], indirect=True)
@pytest.mark.parametrize(
    "how", mostly_long([signal.SIGKILL, signal.SIGSTOP], signal.SIGKILL), ids=["killed", "stopped"]
)
def test_without_the_object_store(
    mortal: subprocess.Popen[bytes], place: Place, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads and writes raise StoreUnavailable, soon and then at once; no result counts as damaged or deleted, and no unfinished file stays."""
    write(place.open(), 1)  # with all the time it may take
    monkeypatch.setitem(remote.OPTIONS["s3"]["config_kwargs"], "read_timeout", 1)
    monkeypatch.setattr(remote, "UPLOAD_SECONDS", 2)
    results = place.open()
    mortal.send_signal(how)
    started = time.perf_counter()
    with pytest.raises(StoreUnavailable):
        results.get(name(1))
    assert time.perf_counter() - started < 10
    started = time.perf_counter()
    for ask in (results.get, results.quarantine, results.delete):
        with pytest.raises(StoreUnavailable):
            ask(name(1))
    assert time.perf_counter() - started < 1
    with pytest.raises(StoreUnavailable):
        write(results, 2)
    results.tidy()
    assert not list(results.staging.iterdir())
    assert results.usage()[0] == 1
    if how == signal.SIGSTOP:
        mortal.send_signal(signal.SIGCONT)
        monkeypatch.undo()
        again = place.open()
        check(again, 1)
        write(again, 2)
        results._backend._retry_at = 0
        check(results, 2)
