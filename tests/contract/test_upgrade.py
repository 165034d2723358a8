"""Deployments of earlier versions open with this one: results bit by bit, studies, users and share keys. tests/upgrades has them, and says how they are recorded."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headscope import stores
from headscope.database import Database, schema
from headscope.errors import HeadscopeError
from headscope.settings import Settings
from tests.support.commands import run
from tests.support.compose import Redis
from tests.support.postgres import Postgres
from tests.support.server import Server
from tests.upgrades import DUMP, HERE, STORE, read, read_study

VERSIONS = sorted(path.parent.name for path in HERE.glob("*/answers.json"))


def unpack(version: str, kind: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the data directory that a version wrote, and what it answered."""
    with tarfile.open(HERE / version / f"{'home' if kind == 'embedded' else kind}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return next(folder.iterdir()), json.loads((HERE / version / "answers.json").read_text("utf-8"))[kind]


def check(server: Server, answers: dict[str, Any]) -> None:
    """The server answers what the earlier version did, to the user and to one who has only the share key."""
    for id_, answer in answers["analyses"].items():
        assert read(server, id_) == answer
    for id_, study in answers.get("studies", {}).items():
        assert read_study(server, id_) == study
    server.use("")
    for id_, key in answers["shared"].items():
        assert read(server, id_, key) == answers["analyses"][id_]
        assert server.get(f"/analyses/{id_}").status_code == 401


def revision(home: Path) -> str:
    with closing(sqlite3.connect(home / stores.FILE)) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


@pytest.mark.parametrize("version", VERSIONS)
def test_one_server_upgrades_by_itself(version: str, tmp_path: Path) -> None:
    home, answers = unpack(version, "embedded", tmp_path)
    with Server(home, token=answers["token"]) as server:
        check(server, answers)
    assert revision(home) == schema.HEAD


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cluster_is_upgraded_by_the_command(version: str, tmp_path: Path, postgres: Postgres, broker: Redis) -> None:
    """Without it, servers do not start."""
    home, answers = unpack(version, "cluster", tmp_path)
    addresses = {"database_url": postgres.create(), "redis_url": broker.url}
    with psycopg.connect(addresses["database_url"], autocommit=True) as connection:
        connection.execute((home / DUMP).read_text("utf-8").replace(STORE, str(home)))
    with (
        closing(Database(addresses["database_url"])) as database,
        pytest.raises(HeadscopeError, match="run: headscope database upgrade"),
    ):
        schema.prepare(database)
    assert "up to date" in run(home, "database", "upgrade", **addresses).stdout
    with Server(home, token=answers["token"], **addresses) as server:
        check(server, answers)


def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path, postgres: Postgres) -> None:
    """The tables of a newer version, with the number of an older one: the server is refused in one sentence, and users and jobs stay."""
    home = tmp_path / "home"
    stores.prepare(Settings(home=home))
    for database in (Database(home / stores.FILE), Database(postgres.create())):
        schema.prepare(database)
        with database.change() as connection:
            connection.execute(schema.versions.update().values(version_num="0001"))
        for upgrade in (schema.upgrade, schema.prepare) if database.embedded else (schema.upgrade,):
            with pytest.raises(HeadscopeError, match="cannot be upgraded"):
                upgrade(database)
        with pytest.raises(HeadscopeError, match="needs an upgrade"):
            schema.check(database)
        database.close()
    with pytest.raises(HeadscopeError, match="cannot be upgraded"):
        stores.recover_files(Settings(home=home))
    assert {path.name for path in home.iterdir()} <= {stores.FILE, f"{stores.FILE}-wal", f"{stores.FILE}-shm"}
