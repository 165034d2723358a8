"""Who may read what: grants of analyses, studies and data sets, and share keys."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable

import sqlalchemy as sa

from ..database import NOW, Database
from ..database.tables import grants, shares, users

# Built once, because every read of a user runs it.
MAY_READ = sa.select(sa.true()).where(grants.c.owner == sa.bindparam("by"), grants.c.id == sa.bindparam("of"))
HAS_ACCESS = sa.and_(sa.or_(users.c.sha256.is_not(None), users.c.subject.is_not(None)), users.c.revoked.is_(None))
# A key counts only while its owner has access. LOCAL, the owner on a server without users, is not in their table.
SHARED = sa.select(shares.c.id).outerjoin(users, users.c.name == shares.c.owner)
SHARED = SHARED.where(shares.c.share_key == sa.bindparam("key"), sa.or_(users.c.name.is_(None), HAS_ACCESS))


class Grants:
    """The grants and share keys of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def grant(self, owner: str, *ids: str) -> None:
        """Grant an owner stored analyses, which need no jobs."""
        with self._database.change("promise") as connection:
            self._grant(connection, {(owner, id_) for id_ in ids})

    def granted(self, owner: str) -> set[str]:
        """Return the ids of everything that the owner has a grant of."""
        with self._database.read() as connection:
            return set(connection.execute(sa.select(grants.c.id).where(grants.c.owner == owner)).scalars())

    def may_read(self, id_: str, owner: str) -> bool:
        """Return whether the owner has a grant of the analysis."""
        with self._database.read() as connection:
            return connection.execute(MAY_READ, {"of": id_, "by": owner}).first() is not None

    def share(self, id_: str, owner: str) -> str:
        """Return the owner's share key of an analysis or study (128 bit, 32 hexadecimal digits): the same one until it is revoked or the grant ends."""
        with self._database.change("promise") as connection:
            key = {"share_key": secrets.token_hex(16), "id": id_, "owner": owner}
            connection.execute(self._database.insert(shares).values(key).on_conflict_do_nothing())
            mine = sa.select(shares.c.share_key).where(shares.c.id == id_, shares.c.owner == owner)
            return str(connection.execute(mine).scalar_one())

    def unshare(self, id_: str, owner: str) -> bool:
        """Revoke the owner's share key; return False if there was none."""
        with self._database.change("promise") as connection:
            return connection.execute(shares.delete().where(shares.c.id == id_, shares.c.owner == owner)).rowcount > 0

    def shared(self, key: str) -> str | None:
        """Return the id of the analysis or study that a share key opens; None while the access of its owner is revoked."""
        with self._database.read() as connection:
            found: str | None = connection.execute(SHARED, {"key": key}).scalar()
            return found

    def _grant(self, connection: sa.Connection, pairs: Collection[tuple[str, str]]) -> None:
        """Grant ids to owners, given as pairs (owner, id). Sorted, so that concurrent transactions cannot block each other."""
        statement = self._database.insert(grants)
        renewed = {"requested": statement.excluded.requested}
        rows = [{"owner": owner, "id": id_} for owner, id_ in sorted(pairs)]
        statement = statement.values(requested=NOW)
        connection.execute(statement.on_conflict_do_update(index_elements=["owner", "id"], set_=renewed), rows)


def owners_of(connection: sa.Connection, id_: str) -> list[str]:
    """Return the owners with a grant, by name."""
    return list(
        connection.execute(sa.select(grants.c.owner).where(grants.c.id == id_).order_by(grants.c.owner)).scalars()
    )


def withdraw(connection: sa.Connection, pairs: Iterable[tuple[str, str]]) -> int:
    """Remove the grants of these pairs (owner, id) with their share keys; return the number of grants."""
    gone = 0
    for owner, id_ in sorted(pairs):
        connection.execute(shares.delete().where(shares.c.id == id_, shares.c.owner == owner))
        gone += connection.execute(grants.delete().where(grants.c.owner == owner, grants.c.id == id_)).rowcount
    return gone
