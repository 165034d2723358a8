"""A backend in an object store, or anywhere else that fsspec reaches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..core.lazy import fsspec
from ..errors import HeadscopeError
from .backend import QUARANTINED, quarantine_name, quarantine_time, unavailable
from .manifest import NAME, parse_manifest
from .map_file import Corrupt, Piece
from .staging import ABANDONED_SECONDS, sweep

# After a failure, reads fail at once for this long (s).
PAUSE_SECONDS = 5.0
# An upload may take this long (s), plus its size at the slowest rate (bytes per second).
UPLOAD_SECONDS = 20.0
SLOWEST = 1_000_000
# Timeouts that detect an unreachable store within seconds.
OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 2, "read_timeout": 5, "retries": {"max_attempts": 0}}}
}


class RemoteBackend:
    """An fsspec address such as s3://bucket/prefix. An entry's files are in <id>/<folder>/, and count once <id>/manifest.json names that folder.

    A manifest is created only if there is none, which object stores do atomically.
    """

    remote = True

    def __init__(self, url: str, staging: Path) -> None:
        self._files, root = _file_system(url)
        self._root, self._quarantine = f"{root.rstrip('/')}/results", f"{root.rstrip('/')}/quarantine"
        self._retry_at = 0.0
        self.staging = staging
        staging.mkdir(parents=True, exist_ok=True, mode=0o700)

    def fingerprint(self, id_: str, files: Sequence[str]) -> None:
        return None

    def manifest(self, id_: str) -> bytes | None:
        with suppress(Corrupt), self._connecting(reading=True):
            data: bytes = self._files.cat_file(f"{self._root}/{id_}/{NAME}")
            return data
        return None

    def read(self, id_: str, folder: str, file: str) -> bytes:
        with self._connecting(reading=True):
            data: bytes = self._files.cat_file(f"{self._root}/{id_}/{folder}/{file}")
            return data

    def fill(self, id_: str, folder: str, file: str, pieces: list[Piece]) -> None:
        path = f"{self._root}/{id_}/{folder}/{file}"
        starts, ends = zip(*((start, start + len(room)) for start, room in pieces), strict=True)
        with self._connecting(reading=True):
            try:
                found = self._files.cat_ranges([path] * len(pieces), list(starts), list(ends), on_error="raise")
            except Exception:  # each kind of store has its own error for reading past the end
                if self._files.size(path) < max(ends):
                    raise Corrupt from None
                raise
        for (_, room), data in zip(pieces, found, strict=True):
            if len(data) != len(room):
                raise Corrupt
            room[:] = data

    def open(self, id_: str, file: str) -> None:
        return None

    def publish(self, id_: str, folder: Path) -> bool:
        entry = f"{self._root}/{id_}"
        with self._connecting():
            for path in folder.iterdir():
                if path.name != NAME:
                    self._upload(path, f"{entry}/{folder.name}/{path.name}")
            while not self._create(f"{entry}/{NAME}", (folder / NAME).read_bytes()):
                if self._published_folder(id_) is not None:
                    self._erase(f"{entry}/{folder.name}")
                    return False
                self._erase(f"{entry}/{NAME}")
        return True

    def remove(self, id_: str) -> bool:
        found, folder = self.manifest(id_) is not None, self._published_folder(id_)
        with self._connecting():
            self._erase(f"{self._root}/{id_}/{NAME}")
            if folder is not None:  # tidy finds the folder of an unreadable manifest
                self._erase(f"{self._root}/{id_}/{folder}")
        return found

    def quarantine(self, id_: str) -> bool:
        data, folder = self.manifest(id_), self._published_folder(id_)
        if data is None:
            return False
        entry, target = f"{self._root}/{id_}", f"{self._quarantine}/{quarantine_name(id_)}"
        with self._connecting():
            self._files.pipe_file(f"{target}/{NAME}", data)
            self._erase(f"{entry}/{NAME}")
            if folder is not None:
                with suppress(FileNotFoundError):
                    self._files.mv(f"{entry}/{folder}", f"{target}/{folder}", recursive=True)
            for name in sorted(self._names(self._quarantine), key=quarantine_time)[:-QUARANTINED]:
                self._erase(f"{self._quarantine}/{name}")
        return True

    def tidy(self) -> set[str]:
        sweep(self.staging, ABANDONED_SECONDS)
        entries: dict[str, dict[str, list[str]]] = {}
        with self._connecting():
            for path in self._files.find(self._root):
                id_, _, rest = path.removeprefix(f"{self._root}/").partition("/")
                entries.setdefault(id_, {}).setdefault(rest.rpartition("/")[0], []).append(path)
            for id_, folders in entries.items():
                self._sweep(id_, folders)
        return {id_ for id_, folders in entries.items() if "" in folders}

    @contextmanager
    def _connecting(self, *, reading: bool = False) -> Iterator[None]:
        """Raise StoreUnavailable for any failure, for readers at once while the store is known to be away, and Corrupt for a reader's missing file."""
        if reading and time.monotonic() < self._retry_at:
            raise unavailable()
        try:
            yield
        except (Corrupt, HeadscopeError):
            raise
        except Exception as error:  # each kind of store has its own errors
            if not isinstance(error, FileNotFoundError):
                self._retry_at = time.monotonic() + PAUSE_SECONDS
            elif reading:
                raise Corrupt from None
            raise unavailable(error) from error

    def _sweep(self, id_: str, folders: dict[str, list[str]]) -> None:
        """Remove the folders that no manifest names, unless they may still be being written."""
        written = set(folders) - {""}
        if len(written) == 1 and "" in folders:
            return
        for folder in written - {self._published_folder(id_)}:
            newest = max(self._files.modified(path).timestamp() for path in folders[folder])
            if time.time() - newest > ABANDONED_SECONDS:
                self._erase(f"{self._root}/{id_}/{folder}")

    def _published_folder(self, id_: str) -> str | None:
        """Return the folder that an entry's manifest names; None without a valid manifest."""
        manifest = parse_manifest(id_, self.manifest(id_))
        return manifest.folder if manifest else None

    def _upload(self, path: Path, target: str) -> None:
        """Upload a file, with a timeout if the file system supports one: an HTTP client may wait forever for permission to send."""
        seconds = UPLOAD_SECONDS + path.stat().st_size / SLOWEST
        self._files.put_file(str(path), target, **({"timeout": seconds} if self._files.async_impl else {}))

    def _create(self, path: str, data: bytes) -> bool:
        """Create a file; return False if it exists."""
        try:
            self._files.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        return True

    def _names(self, path: str) -> list[str]:
        try:
            return [found.rstrip("/").rpartition("/")[2] for found in self._files.ls(path, detail=False)]
        except FileNotFoundError:
            return []

    def _erase(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm(path, recursive=True)


def _file_system(url: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    try:
        files, path = fsspec.core.url_to_fs(url, use_listings_cache=False, **OPTIONS.get(url.partition(":")[0], {}))
    except (ImportError, ValueError) as error:
        raise HeadscopeError(
            "HEADSCOPE_STORE_URL is not usable. Give a folder, or an address such as s3://bucket/prefix with headscope[s3] installed."
        ) from error
    if hasattr(files, "retries"):  # s3fs retries on top of its client library
        files.retries = 2
    return files, path
