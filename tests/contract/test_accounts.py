"""Access tokens: only their hashes are stored, in a file that is replaced atomically."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headscope.errors import AccountsUnreadable, InvalidRequest, Unknown
from headscope.server.accounts import Accounts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The token file in a data directory that does not exist yet."""
    return tmp_path / "home" / "tokens.json"


def test_a_token_is_its_users_and_nobody_elses(path: Path) -> None:
    """Two users have two tokens; any other string is invalid."""
    accounts = Accounts(path)
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


def test_tokens_are_long_and_never_kept(path: Path) -> None:
    """A token has 256 random bits; the file contains only its hash."""
    accounts = Accounts(path)
    tokens = [accounts.create(f"user{number}") for number in range(20)]
    assert len(set(tokens)) == 20
    assert all(len(base64.urlsafe_b64decode(f"{token}=")) == 32 for token in tokens)
    written = path.read_text()
    assert not [token for token in tokens if token in written]
    assert hashlib.sha256(tokens[0].encode()).hexdigest() in written


def test_the_file_is_its_users_only(path: Path) -> None:
    """The file has mode 0600 from its creation, in a folder of mode 0700 with nothing else but an empty lock file."""
    Accounts(path).create("ada")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {file.name: file.stat().st_size > 0 for file in path.parent.iterdir()} == {
        "tokens.json": True,
        "tokens.lock": False,
    }


def test_a_running_server_sees_every_change(path: Path) -> None:
    """Another reader of the file, such as a server, sees new and revoked tokens at once."""
    server, command = Accounts(path), Accounts(path)
    assert server.find_user("anything") is None
    token = command.create("ada")
    assert server.find_user(token) == "ada"
    command.revoke("ada")
    assert server.find_user(token) is None
    again = command.create("ada")
    assert (server.find_user(token), server.find_user(again)) == (None, "ada")


def test_when_tokens_are_demanded(path: Path) -> None:
    """Tokens are required once one was created, even after the last is revoked; before, only if the server requires them."""
    accounts = Accounts(path)
    assert (accounts.require_token(), Accounts(path, required=True).require_token()) == (False, True)
    accounts.create("ada")
    assert accounts.require_token()
    accounts.revoke("ada")
    assert accounts.require_token()
    assert accounts.list() == ()


@pytest.mark.parametrize(
    "name", ["", " ", "-ada", "ada lovelace", "a/b", "../x", "ada\n", "é", "a" * 65, "\x1b[31m", "a\x00b"]
)
def test_names_that_can_not_be_had(path: Path, name: str) -> None:
    """Names are restricted, because they appear in logs, lists and file names."""
    with pytest.raises(InvalidRequest):
        Accounts(path).create(name)
    assert not path.exists()


@pytest.mark.parametrize("name", ["a", "ada", "Ada.Lovelace_1-x@lab.example", "7", "a" * 64])
def test_names_that_can(path: Path, name: str) -> None:
    """Letters, digits and the characters of e-mail addresses are allowed."""
    Accounts(path).create(name)
    assert [account.name for account in Accounts(path).list()] == [name]


def test_one_token_per_name(path: Path) -> None:
    """With two tokens of a name it would be unclear which one is revoked."""
    accounts = Accounts(path)
    token = accounts.create("ada")
    with pytest.raises(InvalidRequest, match="Revoke"):
        accounts.create("ada")
    assert accounts.find_user(token) == "ada"
    with pytest.raises(Unknown):
        accounts.revoke("emmy")


GOOD = {"name": "ada", "sha256": "0" * 64, "created": 1.0}
DAMAGED = {
    "empty": b"",
    "cut off": json.dumps({"tokens": [GOOD]}).encode()[:-3],
    "not an object": b"[]",
    "no list": b'{"tokens": 5}',
    "no users": b"{}",
    "a field more": json.dumps({"tokens": [{**GOOD, "admin": True}]}).encode(),
    "a field less": json.dumps({"tokens": [{"name": "ada"}]}).encode(),
    "no hash": json.dumps({"tokens": [{**GOOD, "sha256": ""}]}).encode(),
    "a hash of another kind": json.dumps({"tokens": [{**GOOD, "sha256": 5}]}).encode(),
    "no name": json.dumps({"tokens": [{**GOOD, "name": None}]}).encode(),
    "not UTF-8": b"\xff\xfe",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_lets_nobody_in(path: Path, content: bytes) -> None:
    """A damaged file is an error and never opens the server; no command overwrites it."""
    accounts = Accounts(path)
    token = accounts.create("ada")
    path.write_bytes(content)
    assert accounts.require_token()
    for ask in (
        lambda: accounts.find_user(token),
        accounts.list,
        lambda: accounts.create("emmy"),
        lambda: accounts.revoke("ada"),
    ):
        with pytest.raises(AccountsUnreadable):
            ask()
    assert path.read_bytes() == content


def test_a_file_that_can_not_be_read_lets_nobody_in(path: Path) -> None:
    """A folder in place of the file represents any error of the system; root could read a file without permissions."""
    path.mkdir(parents=True)
    assert Accounts(path).require_token()
    with pytest.raises(AccountsUnreadable):
        Accounts(path).find_user("x")


def test_many_commands_at_once(path: Path) -> None:
    """No token is lost, and a concurrent reader sees every token created before."""
    Accounts(path).create("first")
    done = threading.Event()
    broken: list[int] = []

    def read() -> None:
        reader, most = Accounts(path), 0
        while not done.is_set():
            seen = len(reader.list())
            broken.extend([seen] if seen < most else [])
            most = seen

    reading = threading.Thread(target=read)
    reading.start()
    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(lambda number: Accounts(path).create(f"user{number}"), range(40)))
    done.set()
    reading.join()
    assert broken == []
    accounts = Accounts(path)
    assert [accounts.find_user(token) for token in tokens] == [f"user{number}" for number in range(40)]
