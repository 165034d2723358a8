"""Where things are: what the settings name, opened by servers and workers alike."""

from __future__ import annotations

from .jobs import ANSWER_SECONDS, Record, RedisRecord, SqliteRecord, running
from .settings import Settings
from .store import Files, Inputs, Results

# How long a worker waits for an answer of the record (s): nobody waits for the worker meanwhile.
PATIENCE_SECONDS = 5.0


def record(settings: Settings, *, patient: bool = False) -> Record:
    """The record of jobs: in the cluster's Redis, or beside the results. `patient` is for whoever keeps no request waiting."""
    if settings.redis_url is None:
        return SqliteRecord(settings.home / "jobs.db")
    return RedisRecord(settings.redis_url, seconds=PATIENCE_SECONDS if patient else ANSWER_SECONDS)


def results(settings: Settings) -> Results:
    """The store of results."""
    if settings.redis_url is None:
        return Results.local(settings.home, settings.quota_bytes)
    return Results.shared(_shelf(settings), settings.redis_url, settings.quota_bytes, settings.home / "staging")


def discard_ended(results: Results, record: Record) -> None:
    """Remove what jobs left half written on this machine that were killed or taken over by another worker."""
    results.discard_ended(lambda ids: running(record, ids))


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
