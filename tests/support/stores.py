"""Every kind of store for tests: a folder with SQLite, a folder with PostgreSQL, an object store with PostgreSQL, and access to their files."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import fsspec
import pytest

from headscope.database import Database, schema
from headscope.store import Results
from headscope.store.entries import EntryStore
from tests.support.extent import mostly_long
from tests.support.server import eventually

S = TypeVar("S", bound=EntryStore)
KINDS = ("local", "folder", "bucket")
LARGE = 1_000_000
# An object store takes long for many writes.
bucket_long = pytest.mark.parametrize("place", mostly_long(KINDS, "local", "folder"), indirect=True)


@dataclass(frozen=True)
class Place:
    """The location of a store."""

    kind: str
    root: str
    staging: str
    database: str

    def open(self, quota: int = LARGE, store: type[S] = Results) -> S:
        """Open the store as another process would."""
        if self.kind == "local":
            return store.local(Path(self.root), quota, self.facts)
        return store.shared(self.root, quota, self.facts, Path(self.staging))

    @property
    def facts(self) -> Database:
        """The database, one for each process."""
        return _database(self.database)

    def reopen(self, quota: int = LARGE) -> Results:
        """Open the store in a process that was forked: with connections of its own, and without closing those of the process that forked it."""
        _database.cache_clear()
        return self.open(quota)

    @property
    def files(self) -> fsspec.AbstractFileSystem:
        """The file system of the store."""
        return fsspec.core.url_to_fs(self.root, use_listings_cache=False)[0]

    @property
    def path(self) -> str:
        """The root of the store in `files`."""
        return self.root.removeprefix("s3://")

    def file(self, id_: str, name: str) -> str:
        """Return the path of a file of an entry."""
        if self.kind != "bucket":
            return f"{self.path}/results/{id_[:2]}/{id_}/{name}"
        (found,) = [path for path in self.files.find(f"{self.path}/results/{id_}") if path.endswith(f"/{name}")]
        return found

    def paths(self, part: str = "results") -> list[str]:
        """Return the paths of all files of a part of the store."""
        return sorted(self.files.find(f"{self.path}/{part}"))


@cache
def _database(where: str) -> Database:
    database = Database(where if "://" in where else Path(where))
    schema.prepare(database)
    return database


@contextmanager
def object_store(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run an object store in another process. Environment variables point its clients to it."""
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    log = folder / "moto.log"
    with log.open("wb") as file, pytest.MonkeyPatch.context() as patch:
        server = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            address = eventually(lambda: re.search(r"http://127\.0\.0\.1:\d+", log.read_text()), "the object store")
            patch.setenv("AWS_ENDPOINT_URL", address[0])
            for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                patch.setenv(variable, "testing")
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            patch.setenv("NO_PROXY", "127.0.0.1")
            fsspec.get_filesystem_class("s3").clear_instance_cache()
            yield server
        finally:
            server.kill()
            server.wait()
            # What was opened there is kept by name, and would be taken for the store of the same name around this one.
            fsspec.get_filesystem_class("s3").clear_instance_cache()


def new_place(kind: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    """Return an empty store of a kind, on the servers of the fixtures `postgres` and `buckets`."""
    root = str(folder / "store")
    database = str(folder / "headscope.db") if kind == "local" else request.getfixturevalue("postgres").url
    if kind == "bucket":
        request.getfixturevalue("buckets")
        bucket = uuid.uuid4().hex
        root = f"s3://{bucket}/in/a/prefix"
        fsspec.filesystem("s3").mkdir(bucket)
    request.addfinalizer(_database(database).close)
    return Place(kind, root, str(folder / "staging"), database)
