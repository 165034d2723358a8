"""An entry's manifest: its document, the digests of its files, and at the end a digest of the manifest itself.

An entry can be verified with nothing but its own files, even if the index is lost. A manifest is one JSON object: `id`, `folder` (a name that is unique to
this write), `made` (seconds since 1970), `bytes` (of all other files), `digests`, `document`, and last `sha256`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Hashable
from contextlib import suppress
from functools import cached_property
from typing import Any

from cachetools import LRUCache, TTLCache

from .map_file import Corrupt

NAME = "manifest.json"
# The end of a manifest, which follows the fields it covers.
_SEAL = ', "sha256": "{}"}}'
_SEAL_SIZE = len(_SEAL.format("0" * 64))
# Bytes of all cached manifests. Parsed they take five times as much. A text of 32,768 tokens takes 5.3 MB, and two can be compared.
CACHE_BYTES = 12 * 1024 * 1024
# A use this soon (s) after another one is not noted: looking it up in the index would cost more than the read.
SAME_USE_SECONDS = 1.0
MAX_USED = 10_000


class Manifest:
    """The contents of an entry, verified when constructed and parsed on first access. Raises Corrupt unless `data` is what was sealed for that id."""

    def __init__(self, id_: str, data: bytes) -> None:
        self.id, self.data = id_, data
        self.digest = hashlib.sha256(data[:-_SEAL_SIZE] + b"}").hexdigest()
        if data[-_SEAL_SIZE:] != _SEAL.format(self.digest).encode() or not data.startswith(_begin(id_)):
            raise Corrupt

    @property
    def folder(self) -> str:
        """The name of the write."""
        return str(self._fields["folder"])

    @property
    def made(self) -> float:
        """Seconds since 1970."""
        return float(self._fields["made"])

    @property
    def length(self) -> int:
        """Bytes of the manifest itself."""
        return len(self.data)

    @property
    def size(self) -> int:
        """Bytes of all the entry's files."""
        return int(self._fields["bytes"]) + self.length

    @property
    def document(self) -> dict[str, Any]:
        """The entry's description, as JSON."""
        document: dict[str, Any] = self._fields["document"]
        return document

    @property
    def digests(self) -> dict[str, Any]:
        """SHA-256 digests of the entry's files or of their parts; see Results and Blobs."""
        digests: dict[str, Any] = self._fields["digests"]
        return digests

    @property
    def sizes(self) -> dict[str, list[int]]:
        """Bytes of every head of the lenses of which the entry keeps factors; empty for results of earlier versions."""
        sizes: dict[str, list[int]] = self.digests.get("sizes", {})
        return sizes

    @cached_property
    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self.data)
        return fields


def sealed(id_: str, folder: str, made: float, size: int, document: dict[str, Any], digests: dict[str, Any]) -> bytes:
    """Return a manifest as it is stored."""
    fields = {"id": id_, "folder": folder, "made": made, "bytes": size, "digests": digests, "document": document}
    body = json.dumps(fields, allow_nan=False).encode()
    return body[:-1] + _SEAL.format(hashlib.sha256(body).hexdigest()).encode()


def parse_manifest(id_: str, data: bytes | None) -> Manifest | None:
    """Return a manifest, None if it is missing or invalid."""
    try:
        return None if data is None else Manifest(id_, data)
    except Corrupt:
        return None


def _begin(id_: str) -> bytes:
    """Return the first bytes of every manifest of that id."""
    return f'{{"id": {json.dumps(id_)}, '.encode()


class ManifestCache:
    """An LRU cache of manifests, each with the fingerprint of its entry's files. Cached manifests must not be modified. Thread-safe."""

    def __init__(self, maxsize: int = CACHE_BYTES) -> None:
        self._lock = threading.Lock()
        self._entries = LRUCache[str, tuple[Hashable, Manifest]](maxsize, getsizeof=lambda entry: entry[1].length)
        self._used: TTLCache[str, None] = TTLCache(MAX_USED, SAME_USE_SECONDS)

    def get(self, id_: str) -> tuple[Hashable, Manifest] | tuple[None, None]:
        """Return the fingerprint and the manifest, if they are cached."""
        with self._lock:
            return self._entries.get(id_, (None, None))

    def put(self, fingerprint: Hashable, manifest: Manifest) -> None:
        """Cache a manifest, unless it is larger than the cache."""
        with self._lock, suppress(ValueError):
            self._entries[manifest.id] = fingerprint, manifest

    def mark_used(self, id_: str) -> None:
        """Remember for SAME_USE_SECONDS that the use of an entry has been noted in the index."""
        with self._lock:
            self._used[id_] = None

    def is_used(self, id_: str) -> bool:
        """Return whether the use of an entry was noted a moment ago."""
        with self._lock:
            return id_ in self._used
