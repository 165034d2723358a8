"""Results in an object store, or anywhere else that fsspec reaches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import HeadscopeError
from .manifest import NAME, sound
from .map_file import Corrupt, Piece
from .shelf import ASIDE, PATIENCE, aside_name, aside_order, sweep, unavailable

# After a failure readers do not ask again for so long (s).
PAUSE = 5.0
# An upload takes at most so long (s), and as long as its bytes take at so many per second.
UPLOAD_SECONDS = 20.0
SLOWEST = 1_000_000
# A store that is away is to be noticed within seconds.
OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 2, "read_timeout": 5, "retries": {"max_attempts": 0}}}
}


class RemoteBackend:
    """A place that fsspec reaches, such as s3://bucket/prefix. Files lie in <id>/<folder>/, and count once <id>/manifest.json names that folder.

    The manifest is created only where there is none, which object stores do in one step.
    """

    far = True

    def __init__(self, url: str, staging: Path) -> None:
        self._files, root = _file_system(url)
        self._root, self._aside = f"{root.rstrip('/')}/results", f"{root.rstrip('/')}/quarantine"
        self._again = 0.0
        self.staging = staging
        staging.mkdir(parents=True, exist_ok=True, mode=0o700)

    def stamp(self, id_: str, files: Sequence[str]) -> None:
        return None

    def manifest(self, id_: str) -> bytes | None:
        with suppress(Corrupt), self._reaching(reading=True):
            data: bytes = self._files.cat_file(f"{self._root}/{id_}/{NAME}")
            return data
        return None

    def whole(self, id_: str, folder: str, file: str) -> bytes:
        with self._reaching(reading=True):
            data: bytes = self._files.cat_file(f"{self._root}/{id_}/{folder}/{file}")
            return data

    def fill(self, id_: str, folder: str, file: str, pieces: list[Piece], *, wait: bool = True) -> None:
        if not wait:
            raise BlockingIOError
        path = f"{self._root}/{id_}/{folder}/{file}"
        starts, ends = zip(*((start, start + len(room)) for start, room in pieces), strict=True)
        with self._reaching(reading=True):
            try:
                found = self._files.cat_ranges([path] * len(pieces), list(starts), list(ends), on_error="raise")
            except Exception:  # beyond a file's end each kind of store raises its own
                if self._files.size(path) < max(ends):
                    raise Corrupt from None
                raise
        for (_, room), data in zip(pieces, found, strict=True):
            if len(data) != len(room):
                raise Corrupt
            room[:] = data

    def publish(self, id_: str, folder: Path) -> bool:
        place = f"{self._root}/{id_}"
        with self._reaching():
            for path in folder.iterdir():
                if path.name != NAME:
                    self._upload(path, f"{place}/{folder.name}/{path.name}")
            while not self._created(f"{place}/{NAME}", (folder / NAME).read_bytes()):
                if self._folder(id_) is not None:
                    self._erase(f"{place}/{folder.name}")
                    return False
                self._erase(f"{place}/{NAME}")
        return True

    def remove(self, id_: str) -> bool:
        there, folder = self.manifest(id_) is not None, self._folder(id_)
        with self._reaching():
            self._erase(f"{self._root}/{id_}/{NAME}")
            if folder is not None:  # the folder of a manifest that can't be read is found by tidy
                self._erase(f"{self._root}/{id_}/{folder}")
        return there

    def put_aside(self, id_: str) -> bool:
        data, folder = self.manifest(id_), self._folder(id_)
        if data is None:
            return False
        place, aside = f"{self._root}/{id_}", f"{self._aside}/{aside_name(id_)}"
        with self._reaching():
            self._files.pipe_file(f"{aside}/{NAME}", data)
            self._erase(f"{place}/{NAME}")
            if folder is not None:
                with suppress(FileNotFoundError):
                    self._files.mv(f"{place}/{folder}", f"{aside}/{folder}", recursive=True)
            old = sorted(self._names(self._aside), key=aside_order)[:-ASIDE]
            for name in old:
                self._erase(f"{self._aside}/{name}")
        return True

    def tidy(self) -> set[str]:
        sweep(self.staging, PATIENCE)
        lying: dict[str, dict[str, list[str]]] = {}
        with self._reaching():
            for path in self._files.find(self._root):
                id_, _, rest = path.removeprefix(f"{self._root}/").partition("/")
                lying.setdefault(id_, {}).setdefault(rest.rpartition("/")[0], []).append(path)
            for id_, folders in lying.items():
                self._sweep(id_, folders)
        return {id_ for id_, folders in lying.items() if "" in folders}

    @contextmanager
    def _reaching(self, *, reading: bool = False) -> Iterator[None]:
        """What goes wrong between here and there is StoreUnavailable, for readers at once for a while; what is not there for a reader is Corrupt."""
        if reading and time.monotonic() < self._again:
            raise unavailable()
        try:
            yield
        except (Corrupt, HeadscopeError):
            raise
        except Exception as error:  # each kind of store raises its own
            if not isinstance(error, FileNotFoundError):
                self._again = time.monotonic() + PAUSE
            elif reading:
                raise Corrupt from None
            raise unavailable(error) from error

    def _sweep(self, id_: str, folders: dict[str, list[str]]) -> None:
        """Remove folders that no manifest names, unless somebody may still be writing them."""
        written = set(folders) - {""}
        if len(written) == 1 and "" in folders:
            return
        for folder in written - {self._folder(id_)}:
            newest = max(self._files.modified(path).timestamp() for path in folders[folder])
            if time.time() - newest > PATIENCE:
                self._erase(f"{self._root}/{id_}/{folder}")

    def _folder(self, id_: str) -> str | None:
        """The folder that a result's manifest names; None without a sound one."""
        manifest = sound(id_, self.manifest(id_))
        return manifest.folder if manifest else None

    def _upload(self, path: Path, target: str) -> None:
        """A file, within a deadline where there can be one: HTTP clients may wait without end for leave to send it."""
        seconds = UPLOAD_SECONDS + path.stat().st_size / SLOWEST
        self._files.put_file(str(path), target, **({"timeout": seconds} if self._files.async_impl else {}))

    def _created(self, path: str, data: bytes) -> bool:
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
    """The file system of an address, and the path in it."""
    from fsspec.core import url_to_fs

    try:
        files, path = url_to_fs(url, use_listings_cache=False, **OPTIONS.get(url.partition(":")[0], {}))
    except (ImportError, ValueError) as error:
        raise HeadscopeError(
            "The results can't be kept where HEADSCOPE_STORE_URL says. Give a folder, or an address such as s3://bucket/prefix with headscope[s3] installed."
        ) from error
    if hasattr(files, "retries"):  # those of s3fs around those of its library
        files.retries = 2
    return files, path
