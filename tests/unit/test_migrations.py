"""The migrations give the tables that the code has, in both kinds of database."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from headscope.database import Database, schema
from headscope.database.tables import metadata
from tests.support.compose import database_server


def shape(database: Database) -> dict[str, object]:
    """Return what the database knows of its tables."""
    with database.read() as connection:
        inspector = sa.inspect(connection)
        return {
            name: (
                [(column["name"], str(column["type"]), column["nullable"]) for column in inspector.get_columns(name)],
                inspector.get_pk_constraint(name)["constrained_columns"],
                sorted((index["name"] or "", index["column_names"]) for index in inspector.get_indexes(name)),
                [constraint["name"] for constraint in inspector.get_unique_constraints(name)],
            )
            for name in sorted(inspector.get_table_names())
        }


def check(created: Database, migrated: Database) -> None:
    """Create the tables in one database, migrate to them in the other, and compare."""
    schema.prepare(created)
    schema.upgrade(migrated)
    schema.upgrade(created)  # changes nothing
    assert shape(created) == shape(migrated)
    for database in (created, migrated):
        schema.check(database)
        with database.read() as connection:
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        database.close()


def test_migrations_and_tables_agree(tmp_path: Path) -> None:
    check(Database(tmp_path / "created.db"), Database(tmp_path / "migrated.db"))
    with database_server("-c", "fsync=off") as server:
        check(Database(server.create()), Database(server.create()))


def test_the_newest_migration_is_the_expected_one() -> None:
    folder = Path(schema.__file__).with_name("migrations")
    assert ScriptDirectory(str(folder)).get_current_head() == schema.HEAD
