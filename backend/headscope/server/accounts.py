"""The users of a server: each has an access token, signs in with the lab's identity provider, or both. Only hashes of tokens and sessions are stored."""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from cachetools import TTLCache

from .. import stores
from ..database import Database, schema
from ..database.engine import NOW
from ..database.tables import grants, sessions, users
from ..errors import DatabaseUnavailable, InvalidRequest, SignInRefused, Unknown
from ..jobs.grants import HAS_ACCESS
from ..jobs.job import LOCAL
from ..settings import Settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
TOKEN_BYTES = 32
# How the secret of a session begins; no token has a dot.
SESSION = "session."
# Files in the data directory that close a server. They outlive its database file, so that losing that file opens nothing. The second one has the tokens of
# an unreleased version, which are not read.
MARKER, EARLIER = "tokens-required", "tokens.json"
# Users that this server has asked the database for within this time (s) are known while it is away, and at most this many. Probes tell nothing about anyone's
# work, and have to report a long outage.
KNOWN_SECONDS, PROBE_SECONDS, KNOWN_USERS = 60.0, 24 * 3600.0, 10_000


@dataclass(frozen=True, slots=True)
class Account:
    """A user: its name, and when it was created (s since 1970)."""

    name: str
    created: float


# Built once, because every request of a user runs it.
GRANTED = sa.exists().where(grants.c.owner == users.c.name, grants.c.id == sa.bindparam("of"))
USER = sa.select(users.c.name, GRANTED).where(users.c.sha256 == sa.bindparam("hash"))
SESSION_USER = (
    sa.select(users.c.name, GRANTED)
    .join(sessions, sessions.c.name == users.c.name)
    .where(sessions.c.sha256 == sa.bindparam("hash"), sessions.c.expires > NOW, users.c.revoked.is_(None))
)
TAKEN = "There is already a user of that name. Revoke its token first, or choose another name."
CLAIMED = "Your name at the identity provider belongs to another user of this server. Ask its administrator."
REVOKED = "Your access to this server has been revoked. Ask its administrator."
BAD_NAME = "A name has 1 to 64 letters, digits, dots, hyphens, underscores or @, and begins with a letter or a digit."


class Accounts:
    """The users in a database, which is asked every time: commands take effect at once on every server.

    Tokens are required once the first user was created, even after the last one has been revoked: revoking access never opens a server. With `required`,
    they are required without users, too. Every method may raise the errors of Database.
    """

    def __init__(self, database: Database, home: Path, *, required: bool = False) -> None:
        self._database, self._required = database, required
        self._markers = (home / MARKER, home / EARLIER)
        # Users by the hashes of their tokens, and when the database had them (s).
        self._known: TTLCache[str, tuple[str, float]] = TTLCache(KNOWN_USERS, PROBE_SECONDS)
        self._open = False  # whether the database had no user the last time
        self._lock = threading.Lock()

    def is_closed(self) -> bool | None:
        """Return whether requests need a token; None if only the database can tell. Does not wait."""
        if self._required or any(_may_exist(marker) for marker in self._markers):
            return True
        return False if self._database.embedded else None

    def require_token(self) -> bool:
        """Return whether requests need a token. While a cluster's database is away, its last answer counts."""
        closed = self.is_closed()
        if closed is None:
            try:
                with self._database.read() as connection:
                    closed = self._required = connection.execute(sa.select(users.c.name).limit(1)).first() is not None
            except DatabaseUnavailable:
                if not self._open:
                    raise
                return False
            self._open = not closed
        return closed

    def list(self) -> tuple[Account, ...]:
        """Return all users in the order in which they were created."""
        active = sa.select(users.c.name, users.c.created).where(HAS_ACCESS)
        with self._database.read() as connection:
            return tuple(Account(*row) for row in connection.execute(active.order_by(users.c.created, users.c.name)))

    def find_user(self, token: str) -> str | None:
        """Return the name of the user with that token or session, or None. While a cluster's database is away, an answer of the last minute counts."""
        return self.find_reader(token, "")[0]

    def find_reader(self, token: str, id_: str, *, probe: bool = False) -> tuple[str | None, bool]:
        """Return the same, and whether that user has a grant of an analysis or study: False while the database is away. For a `probe`, an answer of the last day counts."""
        digest = _digest(token)
        try:
            with self._database.read() as connection:
                # Timing reveals hashes only, which a client cannot choose.
                statement = SESSION_USER if token.startswith(SESSION) else USER
                found = connection.execute(statement, {"hash": digest, "of": id_}).first()
        except DatabaseUnavailable:
            with self._lock:
                known = self._known.get(digest)
            if known is None or time.monotonic() - known[1] > (PROBE_SECONDS if probe else KNOWN_SECONDS):
                raise
            return known[0], False
        with self._lock:
            if found is None:
                self._known.pop(digest, None)
                return None, False
            self._known[digest] = found[0], time.monotonic()
        return found[0], bool(found[1])

    def create(self, name: str) -> str:
        """Create a user, and return its token, which is stored nowhere. Raises InvalidRequest for a name that is invalid or taken."""
        if not NAME.fullmatch(name):
            raise InvalidRequest(BAD_NAME)
        self._close()
        token = secrets.token_urlsafe(TOKEN_BYTES)
        with self._database.change("promise") as connection:
            values = {"sha256": _digest(token), "created": self._database.now(connection), "revoked": None}
            statement = self._database.insert(users).values(name=name, **values)
            again = statement.on_conflict_do_update(
                index_elements=["name"], set_=values, where=users.c.sha256.is_(None)
            )
            if connection.execute(again.returning(users.c.name)).first() is None:
                raise InvalidRequest(TAKEN)
        return token

    def revoke(self, name: str, *, hand_over: bool = False) -> None:
        """Revoke a user's access immediately, with all sessions; share keys stop until the name has access again. Raises Unknown.

        The user's analyses are kept for a new token of the same name; with `hand_over`, also for the first user of the identity provider who signs in under it.
        """
        values = {"sha256": None, "revoked": None if hand_over else NOW}
        if hand_over:
            values["subject"] = None
        with self._database.change("promise") as connection:
            found = users.update().where(users.c.name == name, sa.true() if hand_over else HAS_ACCESS)
            if connection.execute(found.values(values)).rowcount == 0:
                raise Unknown("user", "There is no user of that name. `headscope token list` lists the users.")
            connection.execute(sessions.delete().where(sessions.c.name == name))

    def sign_in(self, subject: str, name: str, seconds: float) -> tuple[str, str]:
        """Begin a session of a user of the identity provider, who is created if new. Return the user's name and the session's secret.

        `subject` identifies the user: the name at the first sign-in stays, whatever the provider calls the user later. Raises SignInRefused.
        """
        self._close()
        secret = SESSION + secrets.token_urlsafe(TOKEN_BYTES)
        with self._database.change("promise") as connection:
            self._database.take_turn(connection, "headscope users")
            known = connection.execute(
                sa.select(users.c.name, users.c.revoked).where(users.c.subject == subject)
            ).first()
            if known is None:
                self._claim(connection, subject, name)
            elif known.revoked is not None:
                raise SignInRefused(REVOKED)
            else:
                name = known.name
            now = self._database.now(connection)
            connection.execute(sessions.delete().where(sessions.c.expires <= now))
            connection.execute(sessions.insert().values(sha256=_digest(secret), name=name, expires=now + seconds))
        return name, secret

    def sign_out(self, secret: str) -> None:
        """End the session with that secret. Nothing happens for a token, or a session that has ended."""
        if secret.startswith(SESSION):
            with self._database.change() as connection:
                connection.execute(sessions.delete().where(sessions.c.sha256 == _digest(secret)))

    def _claim(self, connection: sa.Connection, subject: str, name: str) -> None:
        """Create a user of the identity provider. The name of an earlier user, or of the analyses from before there were users, is not for the taking."""
        if not NAME.fullmatch(name):
            raise SignInRefused(f"Your name at the identity provider cannot be used here. {BAD_NAME}")
        values = {"subject": subject, "created": self._database.now(connection)}
        free = sa.and_(users.c.sha256.is_(None), users.c.subject.is_(None), users.c.revoked.is_(None))
        statement = self._database.insert(users).values(name=name, **values)
        statement = statement.on_conflict_do_update(index_elements=["name"], set_=values, where=free)
        if name == LOCAL or connection.execute(statement.returning(users.c.name)).first() is None:
            raise SignInRefused(CLAIMED)

    def _close(self) -> None:
        """Require a token from now on."""
        if self._database.embedded:
            self._markers[0].touch(mode=0o600)


@contextmanager
def open_accounts(settings: Settings) -> Iterator[Accounts]:
    """Provide the users for a command, which may be the first to use the database. Raises InvalidSetting and the errors of Database."""
    stores.prepare(settings)
    database = stores.open_database(settings, patient=True)
    try:
        schema.prepare(database)
        yield Accounts(database, settings.home)
    finally:
        database.close()


def _may_exist(path: Path) -> bool:
    """Return whether a file exists, or the system does not tell."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
