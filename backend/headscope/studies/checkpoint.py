"""Chunks that are done, as files in a folder: a study that was ended in the middle goes on with what is missing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ..store import export
from .aggregate import Aggregate


class Checkpoint:
    """A folder with the aggregate of every chunk that is done, by the chunk's id; a file is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, id_: str) -> Aggregate | None:
        """A chunk's aggregate; None if it is not there, or damaged."""
        with suppress(ValueError):
            document, arrays = export.read_safetensors(self._path(id_))
            if document.get("chunk") == id_:
                del document["chunk"]
                return Aggregate(document, arrays)
        return None

    def put(self, id_: str, aggregate: Aggregate) -> None:
        """Keep a chunk's aggregate."""
        path = self._path(id_)
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        export.write_safetensors(export.Flat({**aggregate.document, "chunk": id_}, aggregate.arrays), unfinished)
        unfinished.replace(path)

    def _path(self, id_: str) -> Path:
        return self._folder / f"{id_}.safetensors"
