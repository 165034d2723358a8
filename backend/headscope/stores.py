"""The stores and the job database that the settings name, for servers and workers."""

from __future__ import annotations

import errno
import json
import logging
import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from .database import Database, recover, schema
from .database.tables import jobs as job_table
from .errors import InvalidSetting, StorageFull
from .jobs import JobDatabase, JobKind
from .settings import Settings
from .store import Blobs, Results
from .store.entries import EntryStore
from .store.index import Rules

S = TypeVar("S", bound=EntryStore)
logger = logging.getLogger("headscope")
# Errors of a system without room for a file.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# How the payloads of jobs name a stored image and an uploaded lens.
NAMED = re.compile(r'"(?:image": "sha256:|jacobian_lens": ")([0-9a-f]{32,64})"')
UNFINISHED = sa.select(job_table.c.kind, job_table.c.payload).where(
    job_table.c.status.in_(("queued", "running")),
    (job_table.c.kind == "study")
    | job_table.c.payload.contains('"image": "sha256:')
    | job_table.c.payload.contains('"jacobian_lens": "'),
)
# Inputs, and uploads, may each take this fraction of the quota of results, in addition to it.
BLOB_SHARE = 8
# The database of an embedded deployment.
FILE = "headscope.db"
# Files of an unreleased version, which stay where they are.
EARLIER = {
    "jobs.db": "Its queue, history and share keys are not read. Delete the file once you no longer need that version.",
    "results.db": "The stored results were listed again. Delete the file once you no longer need that version.",
    "tokens.json": "Its access tokens are not read: create them again with headscope token create. Until you delete the file, every request needs a token.",
}


@contextmanager
def usable(setting: str = "HEADSCOPE_HOME") -> Iterator[None]:
    """Raise InvalidSetting or StorageFull if the system refuses a file in the folder of a setting."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise StorageFull(f"The disk of {setting} is full. Free some disk space, then start again.") from None
        raise InvalidSetting(
            f"Headscope cannot write to {setting}. Set it to a folder that the user who runs Headscope can write to."
        ) from None


def prepare(settings: Settings) -> None:
    """Create the folders of the settings and check that they are writable. Raises InvalidSetting or StorageFull."""
    folders = {"HEADSCOPE_HOME": settings.home}
    if settings.redis_url and settings.store_url and "://" not in settings.store_url:
        folders["HEADSCOPE_STORE_URL"] = Path(settings.store_url)
    for setting, folder in folders.items():
        with usable(setting):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"\0" * 4096)


def recover_files(settings: Settings) -> None:
    """Create the database of an embedded deployment, and quarantine a damaged one. Only for the one server that uses the data directory."""
    if settings.redis_url is not None:
        return
    loss = "Queued analyses, users, their history and share keys are lost. Stored results are kept: send a request again to see its result."
    recover(settings.home / FILE, _create, loss)
    for name, sentence in EARLIER.items():
        if (settings.home / name).is_file():
            logger.warning("%s in HEADSCOPE_HOME is of an earlier version. %s", name, sentence)


def _create(path: Path) -> None:
    database = Database(path)
    try:
        schema.prepare(database)
    finally:
        database.close()


def open_database(settings: Settings, *, patient: bool = False) -> Database:
    """Open the database: the PostgreSQL of a cluster, or a file in the data directory. `patient`: see Database. Raises InvalidSetting."""
    if (settings.redis_url is None) != (settings.database_url is None):
        raise InvalidSetting(
            "A cluster needs a database and a broker. Set both HEADSCOPE_DATABASE_URL and HEADSCOPE_REDIS_URL, or neither."
        )
    if settings.database_url is None:
        return Database(settings.home / FILE)
    return Database(settings.database_url, patient=patient)


def results(settings: Settings, database: Database) -> Results:
    """Open the store of results; its index is in the database."""
    return _open(Results, settings, database, "", settings.quota_bytes)


def inputs(settings: Settings, database: Database) -> Blobs:
    """Open the store of images and rows of waiting requests."""
    return _open(Blobs, settings, database, "inputs", settings.quota_bytes // BLOB_SHARE)


def uploads(settings: Settings, database: Database) -> Blobs:
    """Open the store of uploaded data sets."""
    return _open(Blobs, settings, database, "files", settings.quota_bytes // BLOB_SHARE)


def inputs_of(kind: JobKind, payload: str) -> set[str]:
    """Return the blobs that a job reads: its image, its lens, or the rows of the chunks of a study."""
    if kind == "study":
        return {blob for _, blob, *_ in json.loads(payload)["chunks"]}
    return set(NAMED.findall(payload))


def _needed(connection: sa.Connection) -> set[str]:
    """Return the blobs that queued and running jobs read."""
    return {name for kind, payload in connection.execute(UNFINISHED) for name in inputs_of(kind, payload)}


def _withheld(connection: sa.Connection, ids: Collection[str]) -> set[str]:
    """Return those of these results whose job failed or was cancelled, perhaps while the result was published. Sent again, the job finds it."""
    ended = job_table.c.id.in_(ids), job_table.c.status.in_(("failed", "cancelled"))
    return set(connection.execute(sa.select(job_table.c.id).where(*ended)).scalars())


OF_RESULTS, OF_BLOBS = Rules(withheld=_withheld), Rules(needed=_needed)


def discard_ended(results: Results, jobs: JobDatabase) -> None:
    """Remove what killed or replaced runs of jobs left half written on this machine."""
    results.discard_ended(jobs.running)


def _open(store: type[S], settings: Settings, database: Database, folder: str, quota_bytes: int) -> S:
    rules = OF_BLOBS if issubclass(store, Blobs) else OF_RESULTS
    if settings.redis_url is None:
        return store.local(settings.home / folder, quota_bytes, database, folder or "results", rules)
    where = "/".join(filter(None, ((settings.store_url or str(settings.home)).rstrip("/"), folder)))
    return store.shared(where, quota_bytes, database, settings.home / "staging", rules)
