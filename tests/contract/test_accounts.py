"""Users and their access tokens, on both databases: only hashes are stored, and every change is seen at once."""

from __future__ import annotations

import base64
import hashlib
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from headscope.database import Database
from headscope.database.tables import sessions, users
from headscope.errors import DatabaseDamaged, DatabaseUnavailable, InvalidRequest, SignInRefused, Unknown
from headscope.jobs import JobDatabase
from headscope.server.accounts import EARLIER, MARKER, Accounts, open_accounts
from headscope.settings import Settings
from tests.contract.job_databases import IDS, Place


@pytest.fixture
def facts(place: Place) -> Iterator[Database]:
    """An empty database."""
    database = Database(place.where)
    yield database
    database.close()


@pytest.fixture
def accounts(facts: Database, tmp_path: Path) -> Accounts:
    """The users of a server."""
    return Accounts(facts, tmp_path)


def test_a_token_is_its_users_and_nobody_elses(accounts: Accounts) -> None:
    """Two users have two tokens; any other string is invalid."""
    ada, emmy = accounts.create("ada"), accounts.create("emmy")
    assert (accounts.find_user(ada), accounts.find_user(emmy)) == ("ada", "emmy")
    for wrong in (
        "",
        ada[:-1],
        ada + "x",
        ada.swapcase(),
        f" {ada}",
        "é" * 43,
        "\ud800",
        hashlib.sha256(ada.encode()).hexdigest(),
    ):
        assert accounts.find_user(wrong) is None


def test_tokens_are_long_and_never_kept(accounts: Accounts, facts: Database) -> None:
    """A token has 256 random bits; the table contains only its hash."""
    tokens = [accounts.create(f"user{number}") for number in range(20)]
    assert len(set(tokens)) == 20
    assert all(len(base64.urlsafe_b64decode(f"{token}=")) == 32 for token in tokens)
    with facts.read() as connection:
        written = str(connection.execute(sa.select(users)).all())
    assert not [token for token in tokens if token in written]
    assert hashlib.sha256(tokens[0].encode()).hexdigest() in written


def test_the_files_are_their_users_only(tmp_path: Path) -> None:
    """All files have mode 0600 from their creation, in a folder of mode 0700."""
    home = tmp_path / "home"
    with open_accounts(Settings(home=home)) as accounts:
        accounts.create("ada")
        files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in home.iterdir()}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert files == dict.fromkeys(["headscope.db", "headscope.db-wal", "headscope.db-shm", MARKER], 0o600)


def test_a_running_server_sees_every_change(accounts: Accounts, place: Place, tmp_path: Path) -> None:
    """Another process, such as a server, sees new and revoked tokens at once."""
    other = Database(place.where)
    server = Accounts(other, tmp_path)
    assert server.find_user("anything") is None
    token = accounts.create("ada")
    assert server.find_user(token) == "ada"
    accounts.revoke("ada")
    assert server.find_user(token) is None
    again = accounts.create("ada")
    assert (server.find_user(token), server.find_user(again)) == (None, "ada")
    other.close()


def test_when_tokens_are_demanded(accounts: Accounts, facts: Database, tmp_path: Path) -> None:
    """Tokens are required once one was created, even after the last is revoked; before, only if the server requires them."""
    server = Accounts(facts, tmp_path)
    assert (server.require_token(), Accounts(facts, tmp_path, required=True).require_token()) == (False, True)
    accounts.create("ada")
    assert server.require_token()
    accounts.revoke("ada")
    for one in (accounts, server, Accounts(facts, tmp_path)):
        assert one.require_token()
        assert one.list() == ()


@pytest.mark.parametrize("marker", [MARKER, EARLIER])
def test_a_file_closes_a_server(accounts: Accounts, tmp_path: Path, marker: str) -> None:
    """The file outlives the database, and the one of an earlier version counts, too. A folder represents any file that cannot be read."""
    assert not accounts.require_token()
    (tmp_path / marker).mkdir()
    assert accounts.is_closed()
    assert accounts.require_token()


@pytest.mark.parametrize(
    "name", ["", " ", "-ada", "ada lovelace", "a/b", "../x", "ada\n", "é", "a" * 65, "\x1b[31m", "a\x00b"]
)
def test_names_that_can_not_be_had(tmp_path: Path, name: str) -> None:
    """Names are restricted, because they appear in logs, lists and file names. A rejected one does not close the server."""
    with open_accounts(Settings(home=tmp_path)) as accounts:
        with pytest.raises(InvalidRequest):
            accounts.create(name)
        assert not accounts.require_token()


@pytest.mark.parametrize("name", ["a", "ada", "Ada.Lovelace_1-x@lab.example", "7", "a" * 64])
def test_names_that_can(tmp_path: Path, name: str) -> None:
    """Letters, digits and the characters of e-mail addresses are allowed."""
    with open_accounts(Settings(home=tmp_path)) as accounts:
        accounts.create(name)
        assert [account.name for account in accounts.list()] == [name]


def test_one_token_per_name(accounts: Accounts) -> None:
    """With two tokens of a name it would be unclear which one is revoked."""
    token = accounts.create("ada")
    with pytest.raises(InvalidRequest, match="Revoke"):
        accounts.create("ada")
    assert accounts.find_user(token) == "ada"
    with pytest.raises(Unknown):
        accounts.revoke("emmy")
    accounts.revoke("ada")
    with pytest.raises(Unknown):
        accounts.revoke("ada")


def test_sessions_of_a_provider(accounts: Accounts, facts: Database) -> None:
    """A session is a secret of its own, which ends at its time, on signing out, or when the user is revoked; the table contains only its hash."""
    (name, first), (_, second) = (accounts.sign_in("1", "ada", 60) for _ in range(2))
    assert name == "ada"
    assert accounts.require_token()
    assert [accounts.find_user(secret) for secret in (first, second, "session.", "session.ada")] == [
        "ada",
        "ada",
        None,
        None,
    ]
    with facts.read() as connection:
        written = str(connection.execute(sa.select(sessions)).all())
    assert hashlib.sha256(first.encode()).hexdigest() in written
    assert first not in written
    accounts.sign_out(first)
    assert (accounts.find_user(first), accounts.find_user(second)) == (None, "ada")
    _, ended = accounts.sign_in("1", "ada", -1)
    assert accounts.find_user(ended) is None
    token = accounts.create("ada")
    accounts.sign_out(token)
    assert accounts.find_user(token) == "ada"
    accounts.revoke("ada")
    assert [accounts.find_user(secret) for secret in (token, second)] == [None, None]
    with facts.read() as connection:
        assert connection.execute(sa.select(sessions)).all() == []
    assert accounts.list() == ()


def test_names_of_users_of_a_provider(accounts: Accounts) -> None:
    """A user keeps the name of the first sign-in. No name that anyone has had is for the taking, unless it is handed over."""
    assert accounts.sign_in("1", "ada", 60)[0] == "ada"
    assert accounts.sign_in("1", "countess", 60)[0] == "ada"
    assert [account.name for account in accounts.list()] == ["ada"]
    accounts.create("emmy")
    for name in ("ada", "emmy", "local", "a b", ""):
        with pytest.raises(SignInRefused):
            accounts.sign_in("2", name, 60)
    accounts.revoke("emmy")
    with pytest.raises(SignInRefused):
        accounts.sign_in("2", "emmy", 60)
    accounts.revoke("emmy", hand_over=True)
    assert accounts.sign_in("2", "emmy", 60)[0] == "emmy"
    with pytest.raises(SignInRefused):
        accounts.sign_in("3", "emmy", 60)
    accounts.revoke("emmy")
    with pytest.raises(SignInRefused, match="revoked"):
        accounts.sign_in("2", "emmy", 60)
    accounts.create("emmy")
    assert accounts.sign_in("2", "other", 60)[0] == "emmy"


def test_a_first_sign_in_from_two_windows(accounts: Accounts) -> None:
    """Both begin a session of one user."""
    with ThreadPoolExecutor(4) as pool:
        begun = list(pool.map(lambda _: accounts.sign_in("1", "ada", 60), range(4)))
    assert {accounts.find_user(secret) for _, secret in begun} == {"ada"}
    assert len(accounts.list()) == 1


def test_without_its_database_nobody_gets_in(tmp_path: Path) -> None:
    """A database that is damaged or away is an error, and opens nothing."""
    with open_accounts(Settings(home=tmp_path)) as accounts:
        token = accounts.create("ada")
    (tmp_path / "headscope.db").write_bytes(b"\xff" * 8192)
    away = Database("postgresql://127.0.0.1:1/x")
    for database, error in ((Database(tmp_path / "headscope.db"), DatabaseDamaged), (away, DatabaseUnavailable)):
        accounts = Accounts(database, tmp_path)
        assert accounts.require_token()
        for ask in (partial(accounts.find_user, token), accounts.list, partial(accounts.revoke, "ada")):
            with pytest.raises(error):
                ask()
    with pytest.raises(DatabaseUnavailable):
        Accounts(away, tmp_path / "empty").require_token()


def test_a_known_token_counts_while_the_database_is_away(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a server can still report its state. A token that was revoked, or that the server has not seen, does not count."""
    ada, emmy, mary = (accounts.create(name) for name in ("ada", "emmy", "mary"))
    assert [accounts.find_user(token) for token in (ada, emmy)] == ["ada", "emmy"]
    accounts.revoke("emmy")
    assert accounts.find_user(emmy) is None
    monkeypatch.setattr(accounts, "_database", Database("postgresql://127.0.0.1:1/x"))
    assert accounts.find_user(ada) == "ada"
    for token in (emmy, mary):
        with pytest.raises(DatabaseUnavailable):
            accounts.find_user(token)


def test_an_old_answer_does_not_count(facts: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token may have been revoked since."""
    monkeypatch.setattr("headscope.server.accounts.KNOWN_SECONDS", 0.05)
    accounts = Accounts(facts, tmp_path)
    token = accounts.create("ada")
    assert accounts.find_user(token) == "ada"
    time.sleep(0.1)
    monkeypatch.setattr(accounts, "_database", Database("postgresql://127.0.0.1:1/x"))
    with pytest.raises(DatabaseUnavailable):
        accounts.find_user(token)
    # A supervisor still learns that the database is away.
    assert accounts.find_reader(token, "", probe=True) == ("ada", False)
    with pytest.raises(DatabaseUnavailable):
        accounts.find_reader("other", "", probe=True)


def test_a_server_that_was_open_stays_open_while_the_database_is_away(
    accounts: Accounts, facts: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finished analyses can be read then. It closes with the first user that the database has."""
    assert not accounts.require_token()
    if not facts.embedded:  # an embedded database is not asked
        with monkeypatch.context() as away:
            away.setattr(accounts, "_database", Database("postgresql://127.0.0.1:1/x"))
            assert not accounts.require_token()
    accounts.create("ada")
    assert accounts.require_token()


def test_grants_of_a_reader(accounts: Accounts, facts: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One query identifies the user and its grant; a withdrawn one does not count from then on, nor does any while the database is away."""
    database = JobDatabase(facts)
    ada, emmy = accounts.create("ada"), accounts.create("emmy")
    for name in ("ada", "emmy"):
        database.grant(name, IDS[0])
    assert accounts.find_reader(ada, IDS[0]) == ("ada", True)
    assert accounts.find_reader(ada, IDS[1]) == ("ada", False)
    assert accounts.find_reader("other", IDS[0]) == (None, False)
    database.forget(IDS[0], "ada")
    assert accounts.find_reader(ada, IDS[0]) == ("ada", False)
    assert accounts.find_reader(emmy, IDS[0]) == ("emmy", True)
    monkeypatch.setattr(accounts, "_database", Database("postgresql://127.0.0.1:1/x"))
    assert accounts.find_reader(emmy, IDS[0]) == ("emmy", False)


def test_many_commands_at_once(accounts: Accounts, facts: Database, tmp_path: Path) -> None:
    """No token is lost, and a concurrent reader sees every token created before."""
    done = threading.Event()
    broken: list[int] = []

    def read() -> None:
        reader, most = Accounts(facts, tmp_path), 0
        while not done.is_set():
            seen = len(reader.list())
            broken.extend([seen] if seen < most else [])
            most = seen

    reading = threading.Thread(target=read)
    reading.start()
    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(lambda number: accounts.create(f"user{number}"), range(40)))
    done.set()
    reading.join()
    assert broken == []
    assert [accounts.find_user(token) for token in tokens] == [f"user{number}" for number in range(40)]
