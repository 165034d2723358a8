"""The users of a server. Each has one access token, of which only the hash is stored."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import time
import uuid
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import AccountsUnreadable, InvalidRequest, Unknown

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
SHA256 = re.compile(r"[0-9a-f]{64}")
TOKEN_BYTES = 32
FILE = "tokens.json"
# Inode, modification time (ns) and size: unique per version, because the file is only ever replaced.
Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Account:
    """A user: its name, the SHA-256 of its token in hexadecimal digits, and when it was created (s since 1970)."""

    name: str
    sha256: str
    created: float


class Accounts:
    """The users in the file `path`, which is reread whenever it changes, so that commands take effect on a running server.

    Tokens are required once the file exists, even after the last user has been revoked: revoking access never opens a server.
    With `required`, tokens are required without a file, too.
    """

    def __init__(self, path: Path, *, required: bool = False) -> None:
        self._path, self._required = path, required
        self._read: tuple[Version | None, tuple[Account, ...]] = (None, ())

    def require_token(self) -> bool:
        """Return whether requests need a token. Raises AccountsUnreadable."""
        return self._required or self._version() is not None

    def list(self) -> tuple[Account, ...]:
        """Return all users in the order in which they were created. Raises AccountsUnreadable."""
        version = self._version()
        if version != self._read[0]:
            self._read = (version, self._parse() if version else ())
        return self._read[1]

    def find_user(self, token: str) -> str | None:
        """Return the name of the user with that token, or None. Raises AccountsUnreadable."""
        given = _digest(token)
        # Every token is compared, so that timing does not reveal which one matched.
        found = [account.name for account in self.list() if hmac.compare_digest(account.sha256, given)]
        return found[0] if found else None

    def create(self, name: str) -> str:
        """Create a user, and return its token, which is stored nowhere. Raises InvalidRequest for a name that is invalid or taken."""
        if not NAME.fullmatch(name):
            raise InvalidRequest(
                "A name has 1 to 64 letters, digits, dots, hyphens, underscores or @, and begins with a letter or a digit."
            )
        token = secrets.token_urlsafe(TOKEN_BYTES)

        with self._edit() as accounts:
            if any(account.name == name for account in accounts):
                raise InvalidRequest(
                    "There is already a user of that name. Revoke its token first, or choose another name."
                )
            accounts.append(Account(name, _digest(token), time.time()))
        return token

    def revoke(self, name: str) -> None:
        """Revoke a user's access immediately. Its analyses are kept for a new user of the same name. Raises Unknown."""
        with self._edit() as accounts:
            kept = [account for account in accounts if account.name != name]
            if kept == accounts:
                raise Unknown("user", "There is no user of that name. `headscope token list` lists the users.")
            accounts[:] = kept

    def _version(self) -> Version | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        except OSError:
            raise _unreadable() from None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _parse(self) -> tuple[Account, ...]:
        try:
            found = tuple(Account(**entry) for entry in json.loads(self._path.read_bytes())["tokens"])
            whole = all(NAME.fullmatch(one.name) and SHA256.fullmatch(one.sha256) and one.created > 0 for one in found)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            whole = False
        if not whole:
            raise _unreadable()
        return found

    @contextmanager
    def _edit(self) -> Iterator[MutableSequence[Account]]:
        """Provide the users for a change, under a lock, and then replace the file. Raises AccountsUnreadable."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._path.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                accounts = [*self.list()]
                yield accounts
                self._replace(json.dumps({"tokens": [asdict(account) for account in accounts]}, indent=1).encode())
        except OSError:
            raise AccountsUnreadable(
                "The file of access tokens cannot be written. Run this command as the user that runs the server."
            ) from None

    def _replace(self, data: bytes) -> None:
        """Replace the file atomically, readable by its owner only."""
        new = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}")
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        finally:
            new.unlink(missing_ok=True)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _unreadable() -> AccountsUnreadable:
    return AccountsUnreadable(
        "The file of access tokens (tokens.json in HEADSCOPE_HOME) cannot be read. The server's administrator must repair it, or create the tokens again."
    )
