"""Finished analyses: written once, verified on every read, within a quota, put aside when damaged."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors.numpy import load, save

from ..errors import StorageFull, StoreUnavailable
from .index import Index, RedisIndex, SqliteIndex
from .manifest import NAME, SMALL, Manifest, Open, sealed
from .map_file import Corrupt, MapWriter, blocks, read_heads, storing, values_of
from .remote import RemoteBackend
from .shelf import Attempt, BlobBackend, LocalBackend, discard_ended, staged, unavailable

Array = NDArray[Any]
ALL = slice(None)


@dataclass(frozen=True)
class Stored:
    """A finished analysis in the store: its document, its small arrays, and its maps head by head.

    `digest` is that of its manifest, and so of every byte of it. `stamp` is what its files bore when it was found, None if nobody can tell: once one of them
    changes, it is found under another.
    """

    shelf: BlobBackend
    manifest: Manifest
    stamp: Hashable = None

    @property
    def document(self) -> dict[str, Any]:
        """What is said about the analysis in JSON."""
        return self.manifest.document

    @property
    def digest(self) -> str:
        """64 hexadecimal digits; another writing of the same analysis has others."""
        return self.manifest.digest

    @property
    def far(self) -> bool:
        """Whether reading it means asking another machine."""
        return self.shelf.far

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """Thumbnails, measures and notes, by names such as tile/weights/scale. Raises Corrupt."""
        data = self.shelf.whole(self.manifest.id, self.manifest.folder, SMALL)
        if hashlib.sha256(data).hexdigest() != self.manifest.digests["small"]:
            raise Corrupt
        return dict(load(data))

    def maps(self, lens: str, layers: slice, heads: slice) -> Array:
        """Map of `lens` for places layers, heads of the selection: [L', H', Q, K] float32. Raises Corrupt."""
        return values_of(self.map_file(lens, layers, heads))

    def map_file(self, lens: str, layers: slice, heads: slice, *, wait: bool = True) -> memoryview:
        """The same as a safetensors file with one tensor, `map`. Raises Corrupt, and BlockingIOError rather than `wait` for a disk."""
        shape = tuple(self.document["shapes"][lens])
        id_, folder = self.manifest.id, self.manifest.folder
        return read_heads(
            lambda pieces: self.shelf.fill(id_, folder, f"{lens}.safetensors", pieces, wait=wait),
            shape,
            layers,
            heads,
            self.manifest.digests["maps"][lens],
        )

    def verify(self) -> None:
        """Read everything, a few heads at a time. Raises Corrupt."""
        self.arrays  # noqa: B018 - reading verifies
        for lens in self.manifest.digests["maps"]:
            for layers, heads in blocks(self.document["shapes"][lens]):
                self.maps(lens, layers, heads)


class Writer(MapWriter):
    """A result being written: maps first, as they come; then finish() makes it visible at once or not at all."""

    def __init__(self, results: Results, id_: str, folder: Path) -> None:
        super().__init__(folder)
        self._results, self._id = results, id_

    def finish(self, document: dict[str, Any], arrays: Mapping[str, Array]) -> int:
        """Write the rest and publish it; the result's bytes. Raises StorageFull or StoreUnavailable."""
        self.close()
        return self._results._commit(self._id, self._folder, document, arrays, self.digests)  # noqa: SLF001 - one module, two halves


class Results:
    """Results on a shelf, with an index of them. Safe for several threads and processes."""

    def __init__(self, shelf: BlobBackend, index: Index, quota_bytes: int) -> None:
        self._shelf, self._index, self._quota = shelf, index, quota_bytes
        self._open = Open()

    @classmethod
    def local(cls, home: Path, quota_bytes: int) -> Results:
        """The store of a home that one server has for itself."""
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cls(LocalBackend(home, patience=0), SqliteIndex(home / "results.db"), quota_bytes)

    @classmethod
    def shared(cls, where: str, redis_url: str, quota_bytes: int, staging: Path) -> Results:
        """The store of any number of servers and workers. `where` is a folder that all of them see by that name, or an address for fsspec.

        `staging` is a folder of this machine for what is on its way to such an address.
        """
        where = where.removeprefix("file://").rstrip("/")
        shelf = RemoteBackend(where, staging) if "://" in where else LocalBackend(Path(where))
        name = hashlib.sha256(where.encode()).hexdigest()[:16]
        return cls(shelf, RedisIndex(redis_url, f"headscope:store:{name}"), quota_bytes)

    @property
    def staging(self) -> Path:
        """A folder of this machine for files on their way; what is forgotten there is removed."""
        return self._shelf.staging

    def has(self, id_: str) -> bool:
        """Whether the result is here, as far as the index has heard; says nothing about its health."""
        self._catch_up()
        found = self._index.has(id_)
        return self.lies(id_) if found is None else found

    def lies(self, id_: str) -> bool:
        """Whether the result is on the shelf, whatever the index has heard: for whoever computes it if it is not. Raises StoreUnavailable."""
        with suppress(Corrupt):
            return self._shelf.manifest(id_) is not None
        return False

    def get(self, id_: str) -> Stored | None:
        """The result, marked as used now; None if it is not here. Raises Corrupt, or StoreUnavailable."""
        stored = self._unchanged(id_) or self._read(id_)
        if stored is not None:
            self._index.touch([id_])
        return stored

    def opened(self, id_: str) -> Stored | None:
        """The result if it was read lately and no file of it has changed since, had without waiting; None otherwise. `note_uses` marks it as used."""
        stored = self._unchanged(id_)
        if stored is not None:
            self._open.use(id_)
        return stored

    def note_uses(self) -> None:
        """Mark as used what was `opened` since the last call."""
        if used := self._open.used():
            self._index.touch(used)

    def _unchanged(self, id_: str) -> Stored | None:
        """The result if its manifest was read lately and none of its files has changed since."""
        stamp, manifest = self._open.get(id_)
        same = manifest is not None and stamp is not None and stamp == self._shelf.stamp(id_, manifest.files)
        return Stored(self._shelf, manifest, stamp) if manifest is not None and same else None

    def _read(self, id_: str) -> Stored | None:
        """The result as it is on the shelf. Raises Corrupt also where the index knows of a result and the shelf does not."""
        before = self._shelf.stamp(id_, (NAME,))
        data = self._shelf.manifest(id_)
        if data is None:
            if not self._index.has(id_):
                return None
            data = self._shelf.manifest(id_)  # which may have come between the two looks
        if data is None:
            raise Corrupt
        _, known = self._open.get(id_)
        manifest = known if known is not None and known.data == data else Manifest(id_, data)
        stamp = self._shelf.stamp(id_, manifest.files)
        stamp = stamp if stamp and before == stamp[:1] else None
        self._open.put(stamp, manifest)
        return Stored(self._shelf, manifest, stamp)

    @contextmanager
    def writer(self, id_: str, attempt: Attempt | None = None) -> Iterator[Writer]:
        """A place to write a result; whatever is not finished is removed, by `discard_ended` where the process of this attempt at a job is killed."""
        folder = self._shelf.staging / staged(attempt)
        with storing():
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
        with suppress(Corrupt):
            self._shelf.manifest(id_)  # a shelf that is away says so before anything is forgotten
        known = self._index.remove(id_)  # first: what the index has and the shelf has not counts as damaged
        gone = self._shelf.remove(id_)
        with suppress(Corrupt):
            self._still_there(id_)  # somebody may have entered it between the two
        return known or gone

    def quarantine(self, id_: str) -> bool:
        """Move a damaged result out of the way, for a person to look at; only the newest ten are kept. False if it is not here or not damaged."""
        if not self._damaged(id_):
            return False
        aside = self._shelf.put_aside(id_)
        return self._index.remove(id_) or aside

    def usage(self) -> tuple[int, int]:
        """Number of results and their bytes."""
        return self._index.usage()

    def ids(self) -> set[str]:
        """All results in the index. Raises StoreUnavailable while it is away."""
        known = self._index.ids()
        if known is None:
            raise unavailable()
        return known

    def tidy(self) -> None:
        """Remove what killed writers left half written, and bring shelf and index together.

        In a home of its own once, at the start, before anything is written. In a shared store as often as one likes: one process at a time does it.
        """
        known = self._index.ids() if self._index.turn() else None
        if known is None:
            return
        try:
            lying = self._shelf.tidy()
            for id_ in lying - known:
                self._enter(id_, used_when_made=True)
            for id_ in known - lying:
                self._still_there(id_)
        except StoreUnavailable:
            return  # logged where it happened; the next turn comes
        self._index.complete()

    def discard_ended(self, running: Callable[[Collection[str]], Mapping[str, int]]) -> None:
        """Remove what attempts that have ended left half written on this machine. See shelf.discard_ended."""
        with suppress(OSError):  # such as a folder of another machine that does not answer; the next call comes
            discard_ended(self._shelf.staging, running)

    def _damaged(self, id_: str) -> bool:
        try:
            stored = self.get(id_)
            if stored is not None:
                stored.verify()
        except Corrupt:
            return True
        return False

    def _commit(
        self,
        id_: str,
        folder: Path,
        document: dict[str, Any],
        arrays: Mapping[str, Array],
        digests: dict[str, list[str]],
    ) -> int:
        with storing():
            small = save(dict(arrays))
            (folder / SMALL).write_bytes(small)
            size = sum(path.stat().st_size for path in folder.iterdir())
            all_digests = {"small": hashlib.sha256(small).hexdigest(), "maps": digests}
            manifest = sealed(id_, folder.name, time.time(), size, document, all_digests)
            (folder / NAME).write_bytes(manifest)
        size += len(manifest)
        if size > self._quota:
            raise StorageFull(
                "The result is larger than the whole store (HEADSCOPE_QUOTA_BYTES). Ask for fewer layers or lenses, or for no maps."
            )
        while not self._shelf.publish(id_, folder):
            if self._enter(id_):  # another process was first; a result is named by its content, so theirs is as good
                return size
        self._drop(self._index.add(id_, size, self._quota))
        self._catch_up()
        return size

    def _catch_up(self) -> None:
        """Enter and take out what the index could not be told while it was away, as it is on the shelf now."""
        with suppress(StoreUnavailable):  # the next time brings the next try
            for id_ in self._index.late():
                if self._still_there(id_):
                    self._enter(id_)
                if id_ in self._index.late():
                    return

    def _enter(self, id_: str, *, used_when_made: bool = False) -> bool:
        """Put a result of the shelf into the index, or aside if its manifest is damaged. Whether it is there."""
        try:
            data = self._shelf.manifest(id_)
            if data is not None:
                manifest = Manifest(id_, data)
                used = manifest.made if used_when_made else None
                self._drop(self._index.add(id_, manifest.size, self._quota, used))
                return self._still_there(id_)
        except Corrupt:
            self._shelf.put_aside(id_)
        return False

    def _still_there(self, id_: str) -> bool:
        """Whether a result is on the shelf. If it is not, it leaves the index, too: somebody may have entered it while another one was removing it."""
        there = self._shelf.manifest(id_) is not None
        if not there:
            self._index.remove(id_)
        return there

    def _drop(self, victims: Iterable[str]) -> None:
        for id_ in victims:
            with suppress(StoreUnavailable, Corrupt):  # what stays is found by tidy
                self._shelf.remove(id_)
                self._still_there(id_)
