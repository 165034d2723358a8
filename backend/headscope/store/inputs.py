"""Inputs of waiting requests that are too large for a job's record: images and rows of data sets, named by their SHA-256, kept and verified as results are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from ..errors import InvalidImage
from .map_file import Corrupt
from .results import Results

# The share of the store's quota that inputs may take beside it.
SHARE = 8


class Inputs:
    """Bytes by their SHA-256. The least used make room for new ones."""

    def __init__(self, results: Results) -> None:
        self._results = results

    @classmethod
    def local(cls, home: Path, quota_bytes: int) -> Inputs:
        """Those of a home that one server has for itself."""
        return cls(Results.local(home / "inputs", quota_bytes // SHARE))

    @classmethod
    def shared(cls, where: str, redis_url: str, quota_bytes: int, staging: Path) -> Inputs:
        """Those of any number of servers and workers; see Results.shared."""
        return cls(Results.shared(f"{where.rstrip('/')}/inputs", redis_url, quota_bytes // SHARE, staging))

    def put(self, data: bytes) -> str:
        """Keep an input; its name, 64 hexadecimal digits. Raises StorageFull or StoreUnavailable."""
        name = hashlib.sha256(data).hexdigest()
        if self.find(name) is None:
            with self._results.writer(name) as writer:
                writer.finish({}, {"data": np.frombuffer(data, np.uint8)})
        return name

    def get(self, name: str) -> bytes:
        """An image. Raises InvalidImage if it is not here any more, or StoreUnavailable."""
        data = self.find(name)
        if data is None:
            raise InvalidImage("The image is not stored any more. Send the image itself.", pointer="/image")
        return data

    def tidy(self) -> None:
        """As Results.tidy."""
        self._results.tidy()

    def find(self, name: str) -> bytes | None:
        """An input; None if it is not here any more, or damaged. Raises StoreUnavailable."""
        try:
            stored = self._results.get(name)
            return None if stored is None else stored.arrays["data"].tobytes()
        except Corrupt:
            self._results.quarantine(name)
            return None
