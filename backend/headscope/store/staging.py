"""Staging folders: where entries are written before they are published, and how those of killed writers are removed."""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

# Another process may still be writing a file that changed within this time (s).
ABANDONED_SECONDS = 3600.0
# The job that a result is written for, and its run.
Attempt = tuple[str, int]
ATTEMPT = re.compile(r"([^.]+)\.(\d+)\.[0-9a-f]{32}")


def staging_name(attempt: Attempt | None) -> str:
    """Return a new name for a staging folder; it contains the attempt that writes there."""
    return ".".join([*map(str, attempt or ()), uuid.uuid4().hex])


def discard_ended(staging: Path, running: Callable[[Collection[str]], Mapping[str, int]]) -> None:
    """Remove the folders of attempts that have ended. `running` maps the running ones of some jobs to their current runs.

    The folders are listed first: an attempt is in the job database before its folder exists.
    """
    found = {path: attempt for path in staging.iterdir() if (attempt := _attempt(path.name))}
    current = running({job for job, _ in found.values()}) if found else {}
    for path, (job, run) in found.items():
        if current.get(job) != run:
            discard(path, staging)


def _attempt(name: str) -> Attempt | None:
    """Return the attempt that a staging folder belongs to; None for anything else."""
    found = ATTEMPT.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def sweep(staging: Path, seconds: float) -> None:
    """Remove everything in a folder that has not changed for `seconds`."""
    for path in staging.iterdir():
        if seconds:
            with suppress(FileNotFoundError):
                newest = max(part.stat().st_mtime for part in (path, *path.rglob("*")))
                if time.time() - newest < seconds:
                    continue
        erase(path)


def discard(path: Path, staging: Path) -> bool:
    """Remove a file or folder; return whether it existed. It is renamed first, so that no reader or writer finds it half removed."""
    discarded = staging / f"gone.{uuid.uuid4().hex}"
    moved = move(path, discarded)
    erase(discarded)
    return moved


def move(path: Path, target: Path) -> bool:
    """Rename a file or folder; return whether it existed."""
    try:
        path.rename(target)
    except FileNotFoundError:
        return False
    return True


def erase(path: Path) -> None:
    """Remove a folder, or a file in its place."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
