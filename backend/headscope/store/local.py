"""A backend in a folder, which several machines may share."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .backend import QUARANTINED, Fingerprint, quarantine_name, quarantine_time, unavailable
from .manifest import NAME, parse_manifest
from .map_file import Corrupt, Piece, storing
from .staging import ABANDONED_SECONDS, discard, erase, move, sweep

# Errors of a file that is missing or unreadable.
MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO})
# Errors of a rename whose target exists.
EXISTS = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})


class LocalBackend:
    """A folder of entries. Unfinished writes are removed after `abandoned_seconds`: 0 if no other process writes here. `durable` entries survive a power cut."""

    remote = False

    def __init__(self, root: Path, abandoned_seconds: float = ABANDONED_SECONDS, *, durable: bool = False) -> None:
        self._entries, self.staging, self._quarantine = root / "results", root / "incoming", root / "quarantine"
        self._abandoned_seconds, self._durable = abandoned_seconds, durable
        for folder in (self._entries, self.staging, self._quarantine):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def fingerprint(self, id_: str, files: Sequence[str]) -> Fingerprint | None:
        try:
            found = [os.stat(self._file(id_, file)) for file in files]  # noqa: PTH116 - see _file
        except OSError:
            return None
        return tuple((status.st_ino, status.st_mtime_ns, status.st_size) for status in found)

    def manifest(self, id_: str) -> bytes | None:
        file = self._folder(id_) / NAME
        try:
            with _reading():
                return file.read_bytes()
        except Corrupt:
            if not file.parent.exists():
                return None
        with _reading():  # it may have been published in between
            return file.read_bytes()

    def read(self, id_: str, folder: str, file: str) -> bytes:
        with _reading():
            return (self._folder(id_) / file).read_bytes()

    def fill(self, id_: str, folder: str, file: str, pieces: list[Piece]) -> None:
        with _reading(), open(self._file(id_, file), "rb", buffering=0) as source:  # noqa: PTH123 - see _file
            for start, room in pieces:
                while room:
                    source.seek(start)
                    count = source.readinto(room)
                    if not count:
                        raise Corrupt
                    start, room = start + count, room[count:]

    def open(self, id_: str, file: str) -> BinaryIO:
        with _reading():
            return open(self._file(id_, file), "rb", buffering=0)  # noqa: PTH123 - see _file; the reader closes it

    def publish(self, id_: str, folder: Path) -> bool:
        target = self._folder(id_)
        with storing():
            self._flush(*folder.iterdir(), folder)
            changed = [target.parent] if target.parent.exists() else [target.parent, self._entries]
            target.parent.mkdir(exist_ok=True, mode=0o700)
            while not _rename(folder, target):
                if self._is_valid(id_):
                    return False
                discard(target, self.staging)
            self._flush(*changed)
        return True

    def _flush(self, *paths: Path) -> None:
        """Have files, and the names in folders, survive a power cut."""
        for path in paths if self._durable else ():
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def remove(self, id_: str) -> bool:
        return discard(self._folder(id_), self.staging)

    def quarantine(self, id_: str) -> bool:
        moved = move(self._folder(id_), self._quarantine / quarantine_name(id_))
        for old in sorted(self._quarantine.iterdir(), key=lambda path: quarantine_time(path.name))[:-QUARANTINED]:
            erase(old)
        return moved

    def tidy(self) -> set[str]:
        sweep(self.staging, self._abandoned_seconds)
        return {folder.name for folder in self._entries.glob("*/*")}

    def _folder(self, id_: str) -> Path:
        return self._entries / id_[:2] / id_

    def _file(self, id_: str, file: str) -> str:
        """Return the path of a file that every read opens; building a Path would take longer than opening the file."""
        return f"{self._entries}/{id_[:2]}/{id_}/{file}"

    def _is_valid(self, id_: str) -> bool:
        try:
            return parse_manifest(id_, self.manifest(id_)) is not None
        except Corrupt:
            return False


@contextmanager
def _reading() -> Iterator[None]:
    """Raise Corrupt for a missing or unreadable file, and StoreUnavailable for any other failure of the system."""
    try:
        yield
    except OSError as error:
        if error.errno in MISSING:
            raise Corrupt from None
        raise unavailable(error) from error


def _rename(folder: Path, target: Path) -> bool:
    """Rename a folder; return False if the target exists."""
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno in EXISTS:
            return False
        raise
    return True
