"""Plain bytes by id: uploaded data sets, and the inputs of waiting requests that are too large for the job database."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import sqlalchemy as sa

from ..errors import StorageFull
from .entries import NO_ROOM, EntryStore
from .manifest import Manifest
from .map_file import Corrupt, storing

# A blob is verified in pieces of this many bytes, which are also what is held in memory.
PIECE = 4 * 1024 * 1024
DATA = "data"


class Blobs(EntryStore):
    """Blobs by an id of their content, each with a document. A damaged blob is quarantined and treated as missing.

    A blob is one file. The `digests` of its manifest are `piece`, the bytes of a piece, and `pieces`, the SHA-256 of each.
    """

    TOO_LARGE = "The file is larger than all uploads may be together, an eighth of HEADSCOPE_QUOTA_BYTES. Raise that limit, or send a smaller file."
    DURABLE = True

    def put(self, id_: str, path: Path, document: dict[str, Any]) -> None:
        """Store a file, and a document with its `bytes`. Raises StorageFull or StoreUnavailable."""
        with path.open("rb") as source:
            self._write(id_, source, document)

    def put_bytes(self, data: bytes) -> str:
        """Store bytes; return their id, the SHA-256 in 64 hexadecimal digits. Raises StorageFull or StoreUnavailable."""
        id_ = hashlib.sha256(data).hexdigest()
        if self.read(id_) is None or not self._index_entry(id_):  # used now: it is evicted last
            self._write(id_, io.BytesIO(data), {})
        return id_

    def require(self, connection: sa.Connection, ids: Collection[str]) -> None:
        """Raise StorageFull if one of these blobs was evicted. The others are not, until the transaction has ended, after which jobs may need them."""
        if ids and self._index.missing(connection, ids):
            raise StorageFull(NO_ROOM)

    def document(self, id_: str, *, used: bool = True) -> dict[str, Any] | None:
        """Return the document of a blob with the time it was `made` (s since 1970); None if it is missing. Unless it is only listed, it counts as `used`.

        Raises StoreUnavailable.
        """
        manifest = self._find(id_, used=used)
        return None if manifest is None else {**manifest.document, "made": manifest.made}

    def read(self, id_: str) -> bytes | None:
        """Return a blob, None if it is missing. Raises StoreUnavailable."""
        buffer = io.BytesIO()
        return buffer.getvalue() if self._copy(id_, buffer) else None

    def copy(self, id_: str, target: Path) -> bool:
        """Copy a blob to a local path; return False if it is missing. Raises StoreUnavailable."""
        with target.open("wb") as file:
            return self._copy(id_, file)

    def verify(self, id_: str) -> None:
        """Read a blob, if it exists. Raises Corrupt."""
        manifest = self._open(id_)
        for _ in self._pieces(manifest) if manifest else ():
            pass

    def _write(self, id_: str, source: BinaryIO, document: dict[str, Any]) -> None:
        with self._staged() as folder:
            pieces, size = [], 0
            with storing(), (folder / DATA).open("wb") as file:
                while piece := source.read(PIECE):
                    pieces.append(hashlib.sha256(piece).hexdigest())
                    size += file.write(piece)
            self._publish(id_, folder, {**document, "bytes": size}, {"piece": PIECE, "pieces": pieces})

    def _copy(self, id_: str, target: BinaryIO) -> bool:
        manifest = self._find(id_)
        if manifest is None:
            return False
        try:
            target.writelines(self._pieces(manifest))
        except Corrupt:
            self.quarantine(id_)
            return False
        return True

    def _find(self, id_: str, *, used: bool = True) -> Manifest | None:
        """Return the manifest of a blob and mark it as `used`; quarantine a damaged one and return None."""
        try:
            manifest = self._open(id_)
        except Corrupt:
            self.quarantine(id_)
            return None
        if manifest is not None and used:
            self._index.touch(id_)
        return manifest

    def _open(self, id_: str) -> Manifest | None:
        """Return the manifest of a blob, None if it is missing. Raises Corrupt, also for an entry that is not a blob."""
        data = self._read_manifest(id_)
        manifest = None if data is None else Manifest(id_, data)
        if manifest is not None and "pieces" not in manifest.digests:
            raise Corrupt
        return manifest

    def _pieces(self, manifest: Manifest) -> Iterator[bytearray]:
        """Yield a blob piece by piece, each verified. Raises Corrupt."""
        size, width = manifest.document["bytes"], manifest.digests["piece"]
        for start, digest in zip(range(0, size, width), manifest.digests["pieces"], strict=True):
            piece = bytearray(min(width, size - start))
            self._backend.fill(manifest.id, manifest.folder, DATA, [(start, memoryview(piece))])
            if hashlib.sha256(piece).hexdigest() != digest:
                raise Corrupt
            yield piece


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
