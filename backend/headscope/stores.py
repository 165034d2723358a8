"""Where things are: what the settings name, opened by servers and workers alike."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import database
from .errors import InvalidSetting, StorageFull
from .jobs import ANSWER_SECONDS, JobDatabase, RedisJobDatabase, SqliteJobDatabase, running
from .jobs.schema import create as create_jobs
from .settings import Settings
from .store import Files, Inputs, Results
from .store.index import create as create_index

# What the system reports when there is no room for a file.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

# How long a worker waits for an answer of the record (s): nobody waits for the worker meanwhile.
PATIENCE_SECONDS = 5.0


@contextmanager
def usable(setting: str = "HEADSCOPE_HOME") -> Iterator[None]:
    """Raise InvalidSetting or StorageFull where the system refuses a file in the folder of a setting."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise StorageFull(f"The disk of {setting} is full. Free some room, then start again.") from None
        raise InvalidSetting(
            f"Headscope cannot write to {setting}. Set it to a folder that the user who runs Headscope can write to."
        ) from None


def prepare(settings: Settings) -> None:
    """Make the folders of the settings and check that files can be made there. Raises InvalidSetting or StorageFull."""
    folders = {"HEADSCOPE_HOME": settings.home}
    if settings.redis_url and settings.store_url and "://" not in settings.store_url:
        folders["HEADSCOPE_STORE_URL"] = Path(settings.store_url)
    for setting, folder in folders.items():
        with usable(setting):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"\0" * 4096)


def recover(settings: Settings) -> None:
    """Put damaged databases of an embedded home aside. Only for the server that has the home to itself."""
    if settings.redis_url is not None:
        return
    lost = "Queued analyses, the history of each user and share keys are lost. Stored results are kept: send a request again to see its result."
    database.recover(settings.home / "jobs.db", create_jobs, lost)
    for folder in (settings.home, settings.home / "inputs", settings.home / "files"):
        if folder.is_dir():
            database.recover(folder / "results.db", create_index, "It is made again from the stored results.")


def job_database(settings: Settings, *, patient: bool = False) -> JobDatabase:
    """The record of jobs: in the cluster's Redis, or beside the results. `patient` is for whoever keeps no request waiting."""
    if settings.redis_url is None:
        return SqliteJobDatabase(settings.home / "jobs.db")
    return RedisJobDatabase(settings.redis_url, seconds=PATIENCE_SECONDS if patient else ANSWER_SECONDS)


def results(settings: Settings) -> Results:
    """The store of results."""
    if settings.redis_url is None:
        return Results.local(settings.home, settings.quota_bytes)
    return Results.shared(_shelf(settings), settings.redis_url, settings.quota_bytes, settings.home / "staging")


def discard_ended(results: Results, jobs: JobDatabase) -> None:
    """Remove what jobs left half written on this machine that were killed or taken over by another worker."""
    results.discard_ended(lambda ids: running(jobs, ids))


def inputs(settings: Settings) -> Inputs:
    """The store of images and rows that wait to be analysed."""
    if settings.redis_url is None:
        return Inputs.local(settings.home, settings.quota_bytes)
    return Inputs.shared(_shelf(settings), settings.redis_url, settings.quota_bytes, settings.home / "staging")


def files(settings: Settings) -> Files:
    """The store of data sets as they were sent."""
    if settings.redis_url is None:
        return Files.local(settings.home, settings.quota_bytes)
    return Files.shared(_shelf(settings), settings.redis_url, settings.quota_bytes, settings.home / "staging")


def _shelf(settings: Settings) -> str:
    return settings.store_url or str(settings.home)
