"""Creating the tables, and upgrading them with Alembic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from ..core.lazy import alembic_command, alembic_config
from ..errors import HeadscopeError
from .engine import Database
from .sqlite import damaged
from .tables import metadata

# The revision of migrations/versions that these tables have.
HEAD = "0003"
versions = sa.table("alembic_version", sa.column("version_num", sa.String))
NEWER = (
    "The database was written by a newer version of Headscope. Install that version, or restore the backup of this one."
)
OLDER = "The database needs an upgrade. Stop all servers and workers, back it up, and run: headscope database upgrade"
FAILED = (
    "The database cannot be upgraded: its tables are not those of the version that it names, or its user may not change them. Nothing was changed. "
    "Grant the rights or restore a backup, then try again."
)
FOREIGN = "The database of HEADSCOPE_DATABASE_URL has tables of another program. Create a database for Headscope alone."


def prepare(database: Database) -> None:
    """Create the tables of an empty database, and upgrade an embedded one.

    Raises HeadscopeError for another schema or a failed upgrade, DatabaseDamaged for tables that are not ours.
    """
    with _change(database) as connection:
        found = _revision(connection)
        if found == HEAD:
            if database.embedded and not _is_complete(connection):
                raise damaged()
        elif found is not None:
            _refuse(found, older=not database.embedded)
            _upgrade(connection)
        elif sa.inspect(connection).get_table_names():
            raise damaged() if database.embedded else HeadscopeError(FOREIGN)
        else:
            metadata.create_all(connection)
            connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
            connection.execute(versions.insert().values(version_num=HEAD))


def upgrade(database: Database) -> None:
    """Create or upgrade the tables. No server or worker may be running. Raises HeadscopeError for a newer schema or a failed upgrade."""
    with _change(database) as connection:
        _refuse(_revision(connection) or HEAD, older=False)
        _upgrade(connection)


@contextmanager
def _change(database: Database) -> Iterator[sa.Connection]:
    """Run a transaction that creates or upgrades tables. An error in a statement, which is none of the database, means other tables than expected."""
    try:
        with database.change("promise") as connection:
            database.take_turn(connection, "headscope schema")
            yield connection
    except sa.exc.DBAPIError as error:
        raise HeadscopeError(FAILED) from error


def check(database: Database) -> None:
    """Raise HeadscopeError unless the tables are those of this version."""
    with database.read() as connection:
        found = _revision(connection)
    if found is None:
        raise HeadscopeError("The database has no tables yet. Start a server: it creates them.")
    _refuse(found)


def _refuse(revision: str, *, older: bool = True) -> None:
    if revision != HEAD and (older or revision > HEAD):
        raise HeadscopeError(NEWER if revision > HEAD else OLDER)


def _revision(connection: sa.Connection) -> str | None:
    """Return the revision of the tables, None if there are none."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(sa.select(versions.c.version_num)).scalar()
    return found


def _is_complete(connection: sa.Connection) -> bool:
    inspector = sa.inspect(connection)
    return all(
        inspector.has_table(table.name)
        and {column["name"] for column in inspector.get_columns(table.name)} >= set(table.columns.keys())
        for table in metadata.sorted_tables
    )


def _upgrade(connection: sa.Connection) -> None:
    config = alembic_config.Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.attributes["connection"] = connection
    alembic_command.upgrade(config, "head")
