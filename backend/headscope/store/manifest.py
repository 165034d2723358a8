"""A result's manifest: its document, the digests of all its files, and at the end a digest of itself.

So a result can be verified with nothing but its own files, whatever has become of the index. A manifest is one JSON object: `id`, `folder` (the name of the
writing, which no other writing has), `made` (seconds since 1970), `bytes` (of all files but this one), `digests`, `document`, and last `sha256`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from .mapfile import Corrupt

NAME = "manifest.json"
# What stands between the sealed fields and the end: the seal itself.
_SEAL = ', "sha256": "{}"}}'
_SEAL_SIZE = len(_SEAL.format("0" * 64))


@dataclass(frozen=True)
class Manifest:
    """What is in a result. `bytes` counts all its files, `digest` is the manifest's own."""

    id: str
    folder: str
    made: float
    bytes: int
    document: dict[str, Any]
    digests: dict[str, Any] = field(repr=False)
    digest: str


def sealed(id_: str, folder: str, made: float, size: int, document: dict[str, Any], digests: dict[str, Any]) -> bytes:
    """The manifest as it is stored."""
    fields = {"id": id_, "folder": folder, "made": made, "bytes": size, "digests": digests, "document": document}
    body = json.dumps(fields, allow_nan=False).encode()
    return body[:-1] + _SEAL.format(hashlib.sha256(body).hexdigest()).encode()


def opened(id_: str, data: bytes) -> Manifest:
    """The manifest of the result of that id. Raises Corrupt unless it is exactly what was sealed for it."""
    digest = hashlib.sha256(data[:-_SEAL_SIZE] + b"}").hexdigest()
    if data[-_SEAL_SIZE:] != _SEAL.format(digest).encode():
        raise Corrupt
    fields = json.loads(data)
    if fields["id"] != id_:
        raise Corrupt
    size = fields["bytes"] + len(data)
    return Manifest(id_, fields["folder"], fields["made"], size, fields["document"], fields["digests"], digest)


def sound(id_: str, data: bytes | None) -> Manifest | None:
    """The manifest, if there is one and nothing is wrong with it."""
    try:
        return None if data is None else opened(id_, data)
    except Corrupt:
        return None
