"""Finished analyses: written once, verified on every read."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from ..core.arrays import Array
from ..core.factors import EVERY, Factors, Whole
from .backend import BlobBackend
from .entries import EntryStore
from .factor_file import encode, parts_of, read_factors
from .index import Index
from .manifest import NAME, Manifest, ManifestCache
from .map_file import (
    Corrupt,
    Fill,
    MapPart,
    MapWriter,
    Shape,
    blocks,
    empty_file,
    file_of,
    read_heads,
    storing,
    values_of,
)
from .open_map import OpenMap, VerifiedHeads
from .staging import Attempt

SMALL = "small.safetensors"


@dataclass(frozen=True)
class Stored:
    """A finished analysis in the store: its document, its small arrays, and its maps head by head.

    `digest` identifies its manifest and so every byte of it. `fingerprint` changes whenever one of its files does; None on a remote backend.
    """

    backend: BlobBackend
    manifest: Manifest
    fingerprint: Hashable = None
    verified: VerifiedHeads = field(default_factory=VerifiedHeads, compare=False)

    @property
    def document(self) -> dict[str, Any]:
        """The description of the analysis, as JSON."""
        return self.manifest.document

    @property
    def digest(self) -> str:
        """64 hexadecimal digits; they change if the analysis is computed again."""
        return self.manifest.digest

    @property
    def remote(self) -> bool:
        """Whether every read is a network request."""
        return self.backend.remote

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """Thumbnails, measures and notes, by names such as tile/weights/scale. Raises Corrupt."""
        data = self.backend.read(self.manifest.id, self.manifest.folder, SMALL)
        if hashlib.sha256(data).hexdigest() != self.manifest.digests["small"]:
            raise Corrupt
        return dict(load(data))

    def maps(self, lens: str, layers: slice, heads: slice, queries: slice = EVERY, keys: slice = EVERY) -> Array:
        """Return a window of the maps of `lens` for slices of its layers and heads: [L', H', Q', K'] float32, computed if the result has factors.

        Raises Corrupt.
        """
        if not self.is_factored(lens):
            return values_of(self.map_file(lens, layers, heads))[:, :, queries, keys]
        shape = self._shape(lens)
        sizes = [len(range(n)[part]) for n, part in zip(shape, (layers, heads, queries, keys), strict=True)]
        found = np.empty(sizes, np.float32)
        self._compute(lens, layers, heads, found, queries, keys)
        return found

    def _compute(
        self, lens: str, layers: slice, heads: slice, found: Array, queries: slice = EVERY, keys: slice = EVERY
    ) -> None:
        """Compute a window of maps into `found`, [L', H', Q', K']."""
        for one, factors in zip(found.reshape(-1, *found.shape[2:]), self.factors(lens, layers, heads), strict=True):
            factors.tile(0, queries, keys, one)

    def factors(self, lens: str, layers: slice, heads: slice) -> Iterator[Factors]:
        """Yield what the result keeps of each of these heads, from which any window is computed. Raises Corrupt."""
        shape, entry = self._shape(lens), self.manifest
        if self.is_factored(lens):
            yield from read_factors(
                self._fill(lens), shape, layers, heads, entry.sizes[lens], entry.digests["maps"][lens]
            )
            return
        for layer, head in product(range(shape[0])[layers], range(shape[1])[heads]):
            yield Whole(self.maps(lens, slice(layer, layer + 1), slice(head, head + 1))[0])

    def parts(self, lens: str) -> Iterator[MapPart]:
        """Yield all maps of `lens`, some megabytes at a time: layer by layer, head by head, row by row. Raises Corrupt."""
        shape = self._shape(lens)
        if self.is_factored(lens):
            yield from parts_of(self.factors(lens, EVERY, EVERY), shape[1])
            return
        for layers, block in blocks(shape):
            yield MapPart(layers.start, block.start, 0, self.maps(lens, layers, block)[0])

    def map_file(self, lens: str, layers: slice, heads: slice) -> memoryview:
        """Return the same as a safetensors file with one tensor, `map`. Raises Corrupt."""
        if self.is_factored(lens):
            all_layers, all_heads, queries, keys = self._shape(lens)
            shape = len(range(all_layers)[layers]), len(range(all_heads)[heads]), queries, keys
            file, data = empty_file(shape)
            self._compute(lens, layers, heads, np.frombuffer(data, np.float32).reshape(shape))
            return file
        return read_heads(self._fill(lens), self._shape(lens), layers, heads, self.manifest.digests["maps"][lens])

    def open_map(self, lens: str, layers: slice, heads: slice) -> OpenMap | None:
        """Open the same to be sent piece by piece; None if it is computed, or the store is remote. Raises Corrupt."""
        entry = self.manifest
        file = None if self.is_factored(lens) else self.backend.open(entry.id, file_of(lens, entry.sizes))
        if file is None:
            return None
        try:
            return OpenMap(
                file, self._shape(lens), layers, heads, entry.digests["maps"][lens], (entry.digest, lens), self.verified
            )
        except BaseException:
            file.close()
            raise

    def is_factored(self, lens: str) -> bool:
        """Return whether the result keeps the factors of this lens' maps, where they have some."""
        return lens in self.manifest.sizes

    def verify(self) -> None:
        """Read everything, a few heads at a time. Raises Corrupt."""
        self.arrays  # noqa: B018 - reading verifies
        for lens in self.manifest.digests["maps"]:
            for layers, heads in blocks(self._shape(lens)):
                if self.is_factored(lens):
                    deque(self.factors(lens, layers, heads), maxlen=0)
                else:
                    self.maps(lens, layers, heads)

    def _shape(self, lens: str) -> Shape:
        layers, heads, queries, keys = self.document["shapes"][lens]
        return layers, heads, queries, keys

    def _fill(self, lens: str) -> Fill:
        entry = self.manifest
        return partial(self.backend.fill, entry.id, entry.folder, file_of(lens, entry.sizes))


class Writer(MapWriter):
    """A result being written: maps as they are computed, then `finish`. `publish` takes the folder, the document and the digests."""

    def __init__(self, folder: Path, publish: Callable[[Path, dict[str, Any], dict[str, Any]], int]) -> None:
        super().__init__(folder)
        self._publish = publish

    def write_factors(self, lens: str, layer: int, head: int, heads: Sequence[Factors]) -> None:
        """Append heads to a file of factors, in its order. Raises StorageFull."""
        self.write_documents(lens, [encode(one) for one in heads])

    def finish(self, document: dict[str, Any], arrays: Mapping[str, Array]) -> int:
        """Write the small arrays and publish the result; return its bytes. Raises StorageFull or StoreUnavailable."""
        self.close()
        small = save(dict(arrays))
        with storing():
            (self._folder / SMALL).write_bytes(small)
        digests = {"small": hashlib.sha256(small).hexdigest(), "maps": self.digests, "sizes": self.sizes}
        return self._publish(self._folder, document, digests)


class Results(EntryStore):
    """The store of finished analyses and studies."""

    TOO_LARGE = "The result is larger than the whole store (HEADSCOPE_QUOTA_BYTES). Ask for fewer layers or lenses, or for no maps."

    def __init__(self, backend: BlobBackend, index: Index, quota_bytes: int) -> None:
        super().__init__(backend, index, quota_bytes)
        self._manifests, self._verified = ManifestCache(), VerifiedHeads()

    def get(self, id_: str) -> Stored | None:
        """Return a result and mark it as used; None if it does not exist. Raises Corrupt or StoreUnavailable."""
        stored = self._find_cached(id_) or self._read(id_)
        if stored is not None and not self._manifests.is_used(id_):
            self._manifests.mark_used(id_)
            self._index.touch(id_)
        return stored

    def get_cached(self, id_: str) -> Stored | None:
        """Return a result that `get` returned a moment ago, without waiting; None if that was longer ago, or its files have changed."""
        return self._find_cached(id_) if self._manifests.is_used(id_) else None

    def verify(self, id_: str) -> None:
        """Read everything of a result, if it exists. Raises Corrupt."""
        stored = self.get(id_)
        if stored is not None:
            stored.verify()

    @contextmanager
    def writer(self, id_: str, attempt: Attempt | None = None) -> Iterator[Writer]:
        """Open a writer for a result. Unfinished files are removed, after a killed process by `discard_ended` of the job's attempt."""
        with self._staged(attempt) as folder:
            writer = Writer(folder, partial(self._publish, id_))
            try:
                yield writer
            finally:
                writer.close()

    def _find_cached(self, id_: str) -> Stored | None:
        fingerprint, manifest = self._manifests.get(id_)
        if manifest is None or fingerprint is None or fingerprint != self._backend.fingerprint(id_, _files(manifest)):
            return None
        return Stored(self._backend, manifest, fingerprint, self._verified)

    def _read(self, id_: str) -> Stored | None:
        """Read the manifest of a result and cache it."""
        before = self._backend.fingerprint(id_, (NAME,))
        data = self._read_manifest(id_)
        if data is None:
            return None
        _, known = self._manifests.get(id_)
        manifest = known if known is not None and known.data == data else Manifest(id_, data)
        fingerprint = self._backend.fingerprint(id_, _files(manifest))
        fingerprint = fingerprint if fingerprint and before == fingerprint[:1] else None
        self._manifests.put(fingerprint, manifest)
        return Stored(self._backend, manifest, fingerprint, self._verified)


def _files(manifest: Manifest) -> tuple[str, ...]:
    """Return the names of all files of a result, the manifest first."""
    return (NAME, SMALL, *(file_of(lens, manifest.sizes) for lens in manifest.digests["maps"]))
