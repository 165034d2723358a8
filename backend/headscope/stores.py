"""The stores and the job database that the settings name, for servers and workers."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from . import database
from .errors import InvalidSetting, StorageFull
from .jobs import TIMEOUT_SECONDS, JobDatabase, RedisJobDatabase, SqliteJobDatabase, running
from .jobs.schema import create as create_jobs
from .settings import Settings
from .store import Blobs, Results
from .store.entries import EntryStore
from .store.index import create as create_index

S = TypeVar("S", bound=EntryStore)
# Errors of a system without room for a file.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Inputs, and uploads, may each take this fraction of the quota of results, in addition to it.
BLOB_SHARE = 8
# The job database of downloads of an embedded deployment.
DOWNLOADS = "downloads.db"
# How long a worker waits for the job database (s): no request waits for the worker.
WORKER_TIMEOUT_SECONDS = 5.0


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


def recover(settings: Settings) -> None:
    """Quarantine damaged databases of an embedded deployment. Only for the one server that uses the data directory."""
    if settings.redis_url is not None:
        return
    loss = "Queued analyses, the history of each user and share keys are lost. Stored results are kept: send a request again to see its result."
    database.recover(settings.home / "jobs.db", create_jobs, loss)
    database.recover(settings.home / DOWNLOADS, create_jobs, "Queued downloads are lost. Start them again.")
    for folder in (settings.home, settings.home / "inputs", settings.home / "files"):
        if folder.is_dir():
            database.recover(folder / "results.db", create_index, "It is rebuilt from the stored results.")


def job_database(settings: Settings, *, patient: bool = False) -> JobDatabase:
    """Open the job database: the cluster's Redis, or a file in the data directory. `patient` callers keep no request waiting."""
    if settings.redis_url is None:
        return SqliteJobDatabase(settings.home / "jobs.db")
    return RedisJobDatabase(settings.redis_url, seconds=WORKER_TIMEOUT_SECONDS if patient else TIMEOUT_SECONDS)


def download_database(settings: Settings) -> JobDatabase:
    """Open the job database of the downloads of an embedded deployment."""
    return SqliteJobDatabase(settings.home / DOWNLOADS)


def results(settings: Settings) -> Results:
    """Open the store of results."""
    return _open(Results, settings, "", settings.quota_bytes)


def inputs(settings: Settings) -> Blobs:
    """Open the store of images and rows of waiting requests."""
    return _open(Blobs, settings, "inputs", settings.quota_bytes // BLOB_SHARE)


def uploads(settings: Settings) -> Blobs:
    """Open the store of uploaded data sets."""
    return _open(Blobs, settings, "files", settings.quota_bytes // BLOB_SHARE)


def discard_ended(results: Results, jobs: JobDatabase) -> None:
    """Remove what killed or replaced runs of jobs left half written on this machine."""
    results.discard_ended(lambda ids: running(jobs, ids))


def _open(store: type[S], settings: Settings, folder: str, quota_bytes: int) -> S:
    if settings.redis_url is None:
        return store.local(settings.home / folder, quota_bytes)
    where = "/".join(filter(None, ((settings.store_url or str(settings.home)).rstrip("/"), folder)))
    return store.shared(where, settings.redis_url, quota_bytes, settings.home / "staging")
