"""A result's manifest: its document, the digests of all its files, and at the end a digest of itself.

So a result can be verified with nothing but its own files, whatever has become of the index. A manifest is one JSON object: `id`, `folder` (the name of the
writing, which no other writing has), `made` (seconds since 1970), `bytes` (of all files but this one), `digests`, `document`, and last `sha256`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Hashable
from functools import cached_property
from typing import Any

from .map_file import Corrupt

NAME, SMALL = "manifest.json", "small.safetensors"
# What stands between the sealed fields and the end: the seal itself.
_SEAL = ', "sha256": "{}"}}'
_SEAL_SIZE = len(_SEAL.format("0" * 64))
# Bytes of all manifests that are kept open. Parsed they take five times as much.
ROOM = 4 * 1024 * 1024


class Manifest:
    """What is in a result. Verified when it is made, parsed when it is asked. Raises Corrupt unless the data is exactly what was sealed for that id."""

    def __init__(self, id_: str, data: bytes) -> None:
        self.id, self.data = id_, data
        self.digest = hashlib.sha256(data[:-_SEAL_SIZE] + b"}").hexdigest()
        if data[-_SEAL_SIZE:] != _SEAL.format(self.digest).encode() or not data.startswith(_begin(id_)):
            raise Corrupt

    @property
    def folder(self) -> str:
        """The name of the writing."""
        return str(self._fields["folder"])

    @property
    def made(self) -> float:
        """Seconds since 1970."""
        return float(self._fields["made"])

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The names of all its files."""
        return (NAME, SMALL, *(f"{lens}.safetensors" for lens in self.digests["maps"]))

    @property
    def length(self) -> int:
        """Bytes of the manifest itself."""
        return len(self.data)

    @property
    def size(self) -> int:
        """Bytes of all the result's files."""
        return int(self._fields["bytes"]) + self.length

    @property
    def document(self) -> dict[str, Any]:
        """What is said about the analysis."""
        document: dict[str, Any] = self._fields["document"]
        return document

    @property
    def digests(self) -> dict[str, Any]:
        """SHA-256 of `small`, and by lens of the heads of `maps`."""
        digests: dict[str, Any] = self._fields["digests"]
        return digests

    @cached_property
    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self.data)
        return fields


def sealed(id_: str, folder: str, made: float, size: int, document: dict[str, Any], digests: dict[str, Any]) -> bytes:
    """The manifest as it is stored."""
    fields = {"id": id_, "folder": folder, "made": made, "bytes": size, "digests": digests, "document": document}
    body = json.dumps(fields, allow_nan=False).encode()
    return body[:-1] + _SEAL.format(hashlib.sha256(body).hexdigest()).encode()


def sound(id_: str, data: bytes | None) -> Manifest | None:
    """The manifest, if there is one and nothing is wrong with it."""
    try:
        return None if data is None else Manifest(id_, data)
    except Corrupt:
        return None


def _begin(id_: str) -> bytes:
    """How the manifest of that id begins."""
    return f'{{"id": {json.dumps(id_)}, '.encode()


class Open:
    """Manifests read lately, each with the stamp that the result's files bore then. Nobody may change what is in them. Safe for threads."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._manifests: OrderedDict[str, tuple[Hashable, Manifest]] = OrderedDict()
        self._used: set[str] = set()

    def get(self, id_: str) -> tuple[Hashable, Manifest] | tuple[None, None]:
        """The stamp and the manifest, if it is still here."""
        with self._lock:
            found = self._manifests.get(id_)
            if found is None:
                return None, None
            self._manifests.move_to_end(id_)
            return found

    def use(self, id_: str) -> None:
        """Remember that somebody uses the result."""
        with self._lock:
            self._used.add(id_)

    def put(self, stamp: Hashable, manifest: Manifest) -> None:
        """Keep a manifest; the least used go where there is no room."""
        with self._lock:
            _, before = self._manifests.pop(manifest.id, (None, None))
            self._room += before.length if before else 0
            self._manifests[manifest.id] = stamp, manifest
            self._room -= manifest.length
            while self._room < 0:
                self._room += self._manifests.popitem(last=False)[1][1].length

    def used(self) -> set[str]:
        """The ids that were used since the last call."""
        with self._lock:
            used, self._used = self._used, set()
            return used
