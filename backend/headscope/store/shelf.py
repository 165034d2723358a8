"""Where the bytes of results are: what the store asks of such a place, and the folder, which several machines may share.

A result appears whole or not at all: it is written in a folder of staging, then published in one step. Of two writers of one id the first wins; readers see
one of the two, never parts of both.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Protocol

from ..errors import StoreUnavailable
from .manifest import NAME, sound
from .map_file import Corrupt, Piece, storing

logger = logging.getLogger("headscope.store")

# What is half written belongs to somebody who may still be at it, until nothing has changed for so long (s).
PATIENCE = 3600.0
# So many corrupt results are kept for a person to look at.
ASIDE = 10
# What the system says of a place where a file should be and is not, or not to be read any more.
GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO})
# And when a folder can't be renamed because its name is taken.
TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
# And when what is asked for is not in memory, or the file system can't tell.
WAITING = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL})
# Reads what is in memory and nothing else; None where the system knows no such reading.
NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)

# The job that a result is written for, and its run.
Attempt = tuple[str, int]
ATTEMPT = re.compile(r"([^.]+)\.(\d+)\.[0-9a-f]{32}")
# Inode, time of change (ns) and size of each file.
Fingerprint = tuple[tuple[int, int, int], ...]


class BlobBackend(Protocol):
    """What the store asks of the place where it keeps bytes. Everything raises StoreUnavailable where that can't be reached."""

    @property
    def far(self) -> bool:
        """Whether every look takes a while."""

    @property
    def staging(self) -> Path:
        """A folder of this machine for what is being written."""

    def stamp(self, id_: str, files: Sequence[str]) -> Fingerprint | None:
        """What is another one once any of these files of a result is, had without reading them; None if one is not here, or where that takes a while."""

    def manifest(self, id_: str) -> bytes | None:
        """The manifest of a result; None if it is not here. Raises Corrupt if something else stands in its place."""

    def whole(self, id_: str, folder: str, file: str) -> bytes:
        """A file of a result; `folder` as its manifest says. Raises Corrupt if it is not there."""

    def fill(self, id_: str, folder: str, file: str, pieces: list[Piece], *, wait: bool = True) -> None:
        """Fill each piece with the bytes from its place in a file on. Raises Corrupt if there are fewer, and BlockingIOError rather than `wait` for a disk."""

    def publish(self, id_: str, folder: Path) -> bool:
        """Make the result in a folder of staging visible; False if there is one already. Raises StorageFull."""

    def remove(self, id_: str) -> bool:
        """Make a result invisible at once, then remove its files; whether there was one."""

    def put_aside(self, id_: str) -> bool:
        """Move a result where nobody reads it but a person; only the newest are kept. Whether there was one."""

    def tidy(self) -> set[str]:
        """Remove what writers have left half written; the ids of the results that are here."""


class LocalBackend:
    """A folder. `patience` is how long (s) to leave alone what is half written: 0 where nobody else writes."""

    far = False

    def __init__(self, root: Path, patience: float = PATIENCE) -> None:
        self._results, self.staging, self._aside = root / "results", root / "incoming", root / "quarantine"
        self._patience = patience
        for folder in (self._results, self.staging, self._aside):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def stamp(self, id_: str, files: Sequence[str]) -> Fingerprint | None:
        try:
            found = [os.stat(self._file(id_, file)) for file in files]  # noqa: PTH116
        except OSError:
            return None
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)

    def manifest(self, id_: str) -> bytes | None:
        try:
            with _reading():
                return (self._place(id_) / NAME).read_bytes()
        except Corrupt:
            if self._place(id_).exists():
                raise
            return None

    def whole(self, id_: str, folder: str, file: str) -> bytes:
        with _reading():
            return (self._place(id_) / file).read_bytes()

    def fill(self, id_: str, folder: str, file: str, pieces: list[Piece], *, wait: bool = True) -> None:
        with _reading(), open(self._file(id_, file), "rb", buffering=0) as source:  # noqa: PTH123
            for start, room in pieces:
                while room:
                    count = _read(source, start, room) if wait else _read_now(source, start, room)
                    if not count:
                        raise Corrupt
                    start, room = start + count, room[count:]

    def publish(self, id_: str, folder: Path) -> bool:
        target = self._place(id_)
        with storing():
            target.parent.mkdir(exist_ok=True, mode=0o700)
            while not _renamed(folder, target):
                if self._sound(id_):
                    return False
                self._discard(target)
        return True

    def remove(self, id_: str) -> bool:
        return self._discard(self._place(id_))

    def put_aside(self, id_: str) -> bool:
        moved = _moved(self._place(id_), self._aside / aside_name(id_))
        for old in sorted(self._aside.iterdir(), key=lambda path: aside_order(path.name))[:-ASIDE]:
            _erase(old)
        return moved

    def tidy(self) -> set[str]:
        sweep(self.staging, self._patience)
        return {folder.name for folder in self._results.glob("*/*")}

    def _place(self, id_: str) -> Path:
        return self._results / id_[:2] / id_

    def _file(self, id_: str, file: str) -> str:
        """The path of a file that every read opens; a Path would take longer to make than to open."""
        return f"{self._results}/{id_[:2]}/{id_}/{file}"

    def _sound(self, id_: str) -> bool:
        try:
            return sound(id_, self.manifest(id_)) is not None
        except Corrupt:
            return False

    def _discard(self, place: Path) -> bool:
        return discard(place, self.staging)


def _read(source: FileIO, start: int, room: memoryview) -> int:
    source.seek(start)
    return source.readinto(room)


def _read_now(source: FileIO, start: int, room: memoryview) -> int:
    """What is in memory. Raises BlockingIOError where nothing is, or nobody can tell."""
    if NOWAIT is None:
        raise BlockingIOError
    try:
        return os.preadv(source.fileno(), [room], start, NOWAIT)
    except OSError as error:
        if error.errno in WAITING:
            raise BlockingIOError from None
        raise


def discard(place: Path, staging: Path) -> bool:
    """Remove a file or folder; whether there was one. It is renamed first, so that no reader and no writer finds half of it."""
    aside = staging / f"gone.{uuid.uuid4().hex}"
    moved = _moved(place, aside)
    _erase(aside)
    return moved


def staged(attempt: Attempt | None) -> str:
    """Return a new name for a folder of staging, which names the attempt that writes there."""
    return ".".join([*map(str, attempt or ()), uuid.uuid4().hex])


def discard_ended(staging: Path, running: Callable[[Collection[str]], Mapping[str, int]]) -> None:
    """Remove the folders of attempts that have ended. `running` returns, of some jobs, the current runs of those that are running.

    The folders are listed first: an attempt is recorded before its folder exists.
    """
    found = {path: attempt for path in staging.iterdir() if (attempt := _attempt(path.name))}
    current = running({job for job, _ in found.values()}) if found else {}
    for path, (job, run) in found.items():
        if current.get(job) != run:
            discard(path, staging)


def _attempt(name: str) -> Attempt | None:
    """Return the attempt that a folder of staging belongs to; None for anything else."""
    found = ATTEMPT.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def sweep(staging: Path, patience: float) -> None:
    """Remove everything in a folder in which nothing has changed for `patience` s."""
    for left in staging.iterdir():
        if patience:
            with suppress(FileNotFoundError):
                newest = max(path.stat().st_mtime for path in (left, *left.rglob("*")))
                if time.time() - newest < patience:
                    continue
        _erase(left)


@contextmanager
def _reading() -> Iterator[None]:
    """A file that is not there, or can't be read any more, is Corrupt; a system that can't open files now is StoreUnavailable."""
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno in GONE:
            raise Corrupt from None
        raise unavailable(error) from error


def unavailable(error: Exception | None = None) -> StoreUnavailable:
    """The store can't be reached now; why is for the log."""
    if error is not None:
        logger.warning("the store can't be reached: %s: %s", type(error).__name__, error)
    return StoreUnavailable(
        "The store of results can't be reached now. Try again in a moment; the server's log says why."
    )


def aside_name(id_: str) -> str:
    """What a result is called once it is put aside."""
    return f"{id_}.{time.time_ns():020d}"


def aside_order(name: str) -> str:
    """Sorts those names by time."""
    return name.rpartition(".")[2]


def _renamed(folder: Path, target: Path) -> bool:
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno in TAKEN:
            return False
        raise
    return True


def _moved(place: Path, target: Path) -> bool:
    try:
        place.rename(target)
    except FileNotFoundError:
        return False
    return True


def _erase(path: Path) -> None:
    """Remove a folder, or whatever else stands in its place."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
