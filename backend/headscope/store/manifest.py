"""A result's manifest: its document, the digests of all its files, and at the end a digest of itself.

So a result can be verified with nothing but its own files, whatever has become of the index. A manifest is one JSON object: `id`, `folder` (the name of the
writing, which no other writing has), `made` (seconds since 1970), `bytes` (of all files but this one), `digests`, `document`, and last `sha256`.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any

from .mapfile import Corrupt

NAME = "manifest.json"
# What stands between the sealed fields and the end: the seal itself.
_SEAL = ', "sha256": "{}"}}'
_SEAL_SIZE = len(_SEAL.format("0" * 64))


class Manifest:
    """What is in a result. Verified when it is made, parsed when it is asked. Raises Corrupt unless the data is exactly what was sealed for that id."""

    def __init__(self, id_: str, data: bytes) -> None:
        self.id, self._data = id_, data
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

    @property
    def size(self) -> int:
        """Bytes of all the result's files."""
        return int(self._fields["bytes"]) + len(self._data)

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
        fields: dict[str, Any] = json.loads(self._data)
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
