"""The tables of the embedded deployment's job database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache

from ..database import Database, damaged

# queue: the newest version, the turn being served, and since when which job at the head has been passed over.
# Versions count changes of all jobs: they order events, and none is used twice, not even that of a removed job.
TABLES = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, payload TEXT NOT NULL, batch TEXT, priority INTEGER NOT NULL, status TEXT NOT NULL,
    fraction REAL NOT NULL DEFAULT 0, stage TEXT NOT NULL DEFAULT 'queued', detail TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0, error TEXT, created REAL NOT NULL, started REAL, finished REAL, version INTEGER NOT NULL,
    number INTEGER NOT NULL, model TEXT NOT NULL, recipe TEXT NOT NULL, tokens INTEGER, owner TEXT NOT NULL, request_id TEXT NOT NULL,
    run INTEGER NOT NULL DEFAULT 0, worker TEXT NOT NULL DEFAULT '', kind TEXT NOT NULL
);
CREATE TABLE queue (version INTEGER NOT NULL, turn INTEGER NOT NULL DEFAULT 0, passed_id TEXT, passed_at REAL NOT NULL DEFAULT 0);
CREATE TABLE owners (owner TEXT PRIMARY KEY, turn INTEGER NOT NULL);
CREATE TABLE runs (run INTEGER PRIMARY KEY, id TEXT NOT NULL, worker TEXT NOT NULL, heartbeat REAL NOT NULL, cancelled REAL);
CREATE TABLE workers (name TEXT PRIMARY KEY, state TEXT NOT NULL, seen REAL NOT NULL);
CREATE TABLE grants (owner TEXT NOT NULL, id TEXT NOT NULL, requested REAL NOT NULL, PRIMARY KEY (owner, id));
CREATE TABLE shares (share_key TEXT PRIMARY KEY, id TEXT NOT NULL, owner TEXT NOT NULL, UNIQUE (id, owner));
CREATE INDEX jobs_queue ON jobs (status, owner, priority, number);
CREATE INDEX jobs_alike ON jobs (status, recipe, tokens, priority, number);
CREATE INDEX jobs_created ON jobs (created);
CREATE INDEX jobs_version ON jobs (version);
CREATE INDEX jobs_kind ON jobs (kind, created);
CREATE INDEX jobs_chunks ON jobs (batch) WHERE kind = 'chunk';
CREATE INDEX grants_id ON grants (id);
CREATE TRIGGER job_added AFTER INSERT ON jobs BEGIN UPDATE queue SET version = NEW.version; END;
CREATE TRIGGER job_changed AFTER UPDATE OF version ON jobs BEGIN UPDATE queue SET version = MAX(version, NEW.version); END;
CREATE TRIGGER chunk_changed AFTER UPDATE OF version ON jobs WHEN NEW.kind = 'chunk'
    BEGIN UPDATE jobs SET version = NEW.version + 1 WHERE id = NEW.batch; END;
CREATE TRIGGER grant_removed AFTER DELETE ON grants BEGIN DELETE FROM shares WHERE id = OLD.id AND owner = OLD.owner; END;
INSERT INTO queue (version) VALUES (0);
"""
NEXT = "SELECT version + 1 FROM queue"
SCHEMA_VERSION = 4


def create(database: Database) -> None:
    """Create the tables in an empty file. Raises DatabaseDamaged for a file with another schema."""
    with database.change() as connection:
        if not _columns(connection):
            _create(connection)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version != SCHEMA_VERSION or not _expected() <= _columns(connection):
            raise damaged()


def _create(connection: sqlite3.Connection) -> None:
    """Create all tables. executescript would end the transaction."""
    statement = ""
    for line in TABLES.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _columns(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return the columns of all tables, each with its table."""
    query = "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns"
    return set(connection.execute(query))


@cache
def _expected() -> set[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        _create(connection)
        return _columns(connection)
