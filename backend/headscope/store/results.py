"""The index of finished analyses: what is here, how large, when last used; quota, digests, quarantine."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors.numpy import load, save

from ..errors import StorageFull
from .mapfile import Corrupt, MapWriter, read_heads

Array = NDArray[Any]
INDEX = """
CREATE TABLE IF NOT EXISTS results (id TEXT PRIMARY KEY, bytes INTEGER NOT NULL, digest TEXT NOT NULL, used REAL NOT NULL);
CREATE INDEX IF NOT EXISTS results_used ON results (used);
"""


@dataclass(frozen=True)
class Stored:
    """A finished analysis on disk: its document, its small arrays, and its maps head by head."""

    folder: Path
    document: dict[str, Any]
    digests: dict[str, Any] = field(repr=False)

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """Thumbnails, measures and notes, by names such as tile/weights/scale. Raises Corrupt."""
        try:
            data = (self.folder / "small.safetensors").read_bytes()
        except OSError:
            raise Corrupt from None
        if hashlib.sha256(data).hexdigest() != self.digests["small"]:
            raise Corrupt
        return dict(load(data))

    def maps(self, lens: str, layers: slice, heads: slice) -> Array:
        """Map of `lens` for places layers, heads of the selection: [L', H', Q, K] float32. Raises Corrupt."""
        shape = tuple(self.document["shapes"][lens])
        return read_heads(self.folder / f"{lens}.safetensors", shape, layers, heads, self.digests["maps"][lens])


class Writer(MapWriter):
    """A result being written: maps first, as they come; then finish() makes it visible at once or not at all."""

    def __init__(self, results: Results, id_: str, folder: Path) -> None:
        super().__init__(folder)
        self._results, self._id = results, id_

    def finish(self, document: dict[str, Any], arrays: Mapping[str, Array]) -> None:
        """Write the rest, verify nothing is missing, rename into place, index. Raises StorageFull."""
        self.close()
        self._results._commit(self._id, self._folder, document, arrays, self.digests)  # noqa: SLF001 - one module, two halves


class Results:
    """Folder of results with an SQLite index. Safe for several threads and processes."""

    def __init__(self, home: Path, quota_bytes: int) -> None:
        self._root, self._quota = home / "results", quota_bytes
        self._incoming, self._quarantine = home / "incoming", home / "quarantine"
        for folder in (self._root, self._incoming, self._quarantine):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._index = home / "results.db"
        self._local = threading.local()
        with self._connection as connection:
            connection.executescript(INDEX)

    @classmethod
    def local(cls, home: Path, quota_bytes: int) -> Results:
        """The store of a home that has this machine's folder for itself."""
        return cls(home, quota_bytes)

    @property
    def _connection(self) -> sqlite3.Connection:
        if not hasattr(self._local, "connection"):
            connection = sqlite3.connect(self._index, timeout=10, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            self._local.connection = connection
        made: sqlite3.Connection = self._local.connection
        return made

    def has(self, id_: str) -> bool:
        """Whether the result is here; says nothing about its health."""
        return self._connection.execute("SELECT 1 FROM results WHERE id = ?", (id_,)).fetchone() is not None

    def get(self, id_: str) -> Stored | None:
        """The result, marked as used now; None if it is not here. Raises Corrupt."""
        row = self._connection.execute("SELECT digest, used FROM results WHERE id = ?", (id_,)).fetchone()
        if row is None:
            return None
        folder = self._folder(id_)
        try:
            data = (folder / "manifest.json").read_bytes()
        except OSError:
            raise Corrupt from None
        if hashlib.sha256(data).hexdigest() != row[0]:
            raise Corrupt
        if time.time() - row[1] > 1:
            with suppress(sqlite3.OperationalError):  # reading goes on when the disk is full
                self._connection.execute("UPDATE results SET used = ? WHERE id = ?", (time.time(), id_))
        manifest = json.loads(data)
        return Stored(folder, manifest["document"], manifest["digests"])

    @contextmanager
    def writer(self, id_: str) -> Iterator[Writer]:
        """A place to write a result; whatever is not finished is removed."""
        folder = self._incoming / f"{id_}.{uuid.uuid4().hex[:8]}"
        folder.mkdir(mode=0o700)
        writer = Writer(self, id_, folder)
        try:
            yield writer
        finally:
            try:
                writer.close()
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def delete(self, id_: str) -> bool:
        """Forget a result; whether there was one."""
        gone = self._connection.execute("DELETE FROM results WHERE id = ?", (id_,)).rowcount > 0
        _remove(self._folder(id_))
        return gone

    def quarantine(self, id_: str) -> bool:
        """Move a corrupt result out of the way, for a person to look at; only the newest ten are kept. False if there was none."""
        if self._connection.execute("DELETE FROM results WHERE id = ?", (id_,)).rowcount == 0:
            return False
        with suppress(FileNotFoundError):
            self._folder(id_).rename(self._quarantine / f"{id_}.{uuid.uuid4().hex[:8]}")
        kept = sorted(self._quarantine.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in kept[:-10]:
            _remove(old)
        return True

    def usage(self) -> tuple[int, int]:
        """Number of results and their bytes."""
        count, size = self._connection.execute("SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM results").fetchone()
        return int(count), int(size)

    def tidy(self) -> None:
        """Remove what a killed process left half written, or whole but not in the index. Called once at start, before anything is written."""
        for left in self._incoming.iterdir():
            _remove(left)
        for folder in self._root.glob("*/*"):
            if not self.has(folder.name):
                _remove(folder)

    def _folder(self, id_: str) -> Path:
        return self._root / id_[:2] / id_

    def _commit(
        self,
        id_: str,
        folder: Path,
        document: dict[str, Any],
        arrays: Mapping[str, Array],
        digests: dict[str, list[str]],
    ) -> None:
        try:
            small = save(dict(arrays))
            (folder / "small.safetensors").write_bytes(small)
            manifest = json.dumps(
                {"document": document, "digests": {"small": hashlib.sha256(small).hexdigest(), "maps": digests}},
                allow_nan=False,
            ).encode()
            (folder / "manifest.json").write_bytes(manifest)
            size = sum(path.stat().st_size for path in folder.iterdir())
            if size > self._quota:
                raise StorageFull(
                    "The result is larger than the whole store (HEADSCOPE_QUOTA_BYTES). Ask for fewer layers or lenses, or for no maps."
                )
            with self._writing() as connection:
                if self.has(id_):
                    return  # another process was first; a result is named by its content, so theirs is as good
                self._make_room(size)
                target = self._folder(id_)
                target.parent.mkdir(exist_ok=True, mode=0o700)
                _remove(target)
                folder.rename(target)
                connection.execute(
                    "INSERT INTO results VALUES (?, ?, ?, ?)",
                    (id_, size, hashlib.sha256(manifest).hexdigest(), time.time()),
                )
        except OSError as error:
            raise StorageFull(
                "The result could not be written to disk. Free some room, or lower HEADSCOPE_QUOTA_BYTES."
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Folder and index change together: one process at a time, so that neither quota nor digests can disagree."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _make_room(self, size: int) -> None:
        _, used = self.usage()
        for id_, bytes_ in self._connection.execute("SELECT id, bytes FROM results ORDER BY used").fetchall():
            if used + size <= self._quota:
                return
            self.delete(id_)
            used -= bytes_


def _remove(path: Path) -> None:
    """Remove a folder, or whatever else stands in its place."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
