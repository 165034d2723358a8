"""The tables of the embedded home's record, and how a file of an older version gets them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache

from ..database import Database, damaged
from ..errors import HeadscopeError

# What a job has had since version 2 of the file; its versions before had all other columns.
ADDED = {
    "number": "INTEGER NOT NULL DEFAULT 0",
    "model": "TEXT NOT NULL DEFAULT ''",
    "recipe": "TEXT NOT NULL DEFAULT ''",
    "tokens": "INTEGER",
    "owner": "TEXT NOT NULL DEFAULT 'local'",
    "request_id": "TEXT NOT NULL DEFAULT ''",
    "run": "INTEGER NOT NULL DEFAULT 0",
    "worker": "TEXT NOT NULL DEFAULT ''",
}
JOBS = f"""
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, payload TEXT NOT NULL, batch TEXT, priority INTEGER NOT NULL, status TEXT NOT NULL,
    fraction REAL NOT NULL DEFAULT 0, stage TEXT NOT NULL DEFAULT 'queued', detail TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0, error TEXT, created REAL NOT NULL, started REAL, finished REAL, version INTEGER NOT NULL,
    {", ".join(f"{name} {kind}" for name, kind in ADDED.items())}
);
"""
# line: the newest version, the turn that is being served, and since when which job at the head has been passed over.
# Versions count changes over all jobs: they order events, and none is used twice, not even that of a forgotten job.
OTHERS = """
CREATE TABLE line (version INTEGER NOT NULL, turn INTEGER NOT NULL DEFAULT 0, passed_id TEXT, passed_at REAL NOT NULL DEFAULT 0);
CREATE TABLE owners (owner TEXT PRIMARY KEY, turn INTEGER NOT NULL);
CREATE TABLE runs (run INTEGER PRIMARY KEY, id TEXT NOT NULL, worker TEXT NOT NULL, beat REAL NOT NULL, cancelled REAL);
CREATE TABLE workers (name TEXT PRIMARY KEY, claimant TEXT NOT NULL, seen REAL NOT NULL);
CREATE TABLE grants (owner TEXT NOT NULL, id TEXT NOT NULL, asked REAL NOT NULL, PRIMARY KEY (owner, id));
CREATE TABLE shares (share_key TEXT PRIMARY KEY, id TEXT NOT NULL, owner TEXT NOT NULL, UNIQUE (id, owner));
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE observations (name TEXT PRIMARY KEY, value REAL NOT NULL);
CREATE INDEX jobs_line ON jobs (status, owner, priority, number);
CREATE INDEX jobs_alike ON jobs (status, recipe, tokens, priority, number);
CREATE INDEX jobs_created ON jobs (created);
CREATE INDEX IF NOT EXISTS jobs_version ON jobs (version);
CREATE INDEX grants_id ON grants (id);
CREATE TRIGGER job_added AFTER INSERT ON jobs BEGIN UPDATE line SET version = NEW.version; END;
CREATE TRIGGER job_changed AFTER UPDATE OF version ON jobs BEGIN UPDATE line SET version = NEW.version; END;
CREATE TRIGGER grant_gone AFTER DELETE ON grants BEGIN DELETE FROM shares WHERE id = OLD.id AND owner = OLD.owner; END;
"""
NEXT = "SELECT version + 1 FROM line"
# Since version 3: studies, and the chunks they consist of. Triggers fire in no order that one may rely on.
KINDS = """
ALTER TABLE jobs ADD COLUMN kind TEXT NOT NULL DEFAULT 'analysis';
CREATE INDEX jobs_kind ON jobs (kind, created);
CREATE INDEX jobs_parts ON jobs (batch) WHERE kind = 'chunk';
DROP TRIGGER job_changed;
CREATE TRIGGER job_changed AFTER UPDATE OF version ON jobs BEGIN UPDATE line SET version = MAX(version, NEW.version); END;
CREATE TRIGGER part_changed AFTER UPDATE OF version ON jobs WHEN NEW.kind = 'chunk'
    BEGIN UPDATE jobs SET version = NEW.version + 1 WHERE id = NEW.batch; END;
"""
LAYOUT = 3


def create(database: Database) -> None:
    """Make the tables, or bring those of an older version up to date: its jobs and counters stay, and everything was asked for by the one user there was.

    Raises HeadscopeError for a file of a newer version, and DatabaseDamaged where tables or columns are missing.
    """
    with database.change() as connection:
        _update(connection)
        found = _columns(connection)
    if not _expected() <= found:
        raise damaged()


def _update(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > LAYOUT:
        raise HeadscopeError(
            "jobs.db in HEADSCOPE_HOME was written by a newer version of Headscope. Install that version, or move the file away to start without its jobs."
        )
    if found < 2:
        _create(connection)
    if found < LAYOUT:
        for statement in _statements(KINDS):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {LAYOUT}")


def _columns(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return the columns of all tables, each with its table."""
    query = "SELECT tables.name, columns.name FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns"
    return set(connection.execute(query))


@cache
def _expected() -> set[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        _update(connection)
        return _columns(connection)


def _create(connection: sqlite3.Connection) -> None:
    old = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'jobs'").fetchone() is not None
    statements = _upgrade() if old else _statements(JOBS)
    for statement in [*statements, *_statements(OTHERS)]:
        connection.execute(statement)
    connection.execute("INSERT INTO line (version) SELECT COALESCE(MAX(version), 0) FROM jobs")
    if old:
        connection.execute(
            "UPDATE line SET version = MAX(version, COALESCE((SELECT value FROM counters WHERE name = 'forgotten_version'), 0))"
        )
        connection.execute("DELETE FROM counters WHERE name = 'forgotten_version'")
        connection.execute("INSERT INTO owners SELECT DISTINCT owner, 0 FROM jobs")
        connection.execute("INSERT INTO grants SELECT owner, id, created FROM jobs")
        connection.execute(
            "INSERT INTO runs SELECT version, id, worker, started, NULL FROM jobs WHERE status = 'running'"
        )


def _upgrade() -> list[str]:
    """The jobs of version 1 keep their order of arrival; what was running is a run like any other."""
    return [
        "DROP TRIGGER IF EXISTS jobs_forgotten",
        "DROP INDEX IF EXISTS jobs_queue",
        *(f"ALTER TABLE jobs ADD COLUMN {name} {kind}" for name, kind in ADDED.items()),
        "UPDATE jobs SET number = arrived.place FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY created) AS place FROM jobs) AS arrived WHERE arrived.id = jobs.id",
        "UPDATE jobs SET run = version WHERE status = 'running'",
    ]


def _statements(script: str) -> list[str]:
    """The statements of a script, one per line or block. executescript would end the transaction."""
    statements, lines = [], ""
    for line in script.strip().splitlines():
        lines += line + "\n"
        if sqlite3.complete_statement(lines):
            statements.append(lines)
            lines = ""
    return statements
