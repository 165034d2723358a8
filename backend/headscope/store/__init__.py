"""Finished analyses and uploaded files: sealed entries on a local or remote backend, within a quota, with digests that are checked on every read."""

from .blobs import Blobs
from .cache import Cache
from .maintenance import Maintenance
from .results import Results, Stored, Writer

__all__ = ["Blobs", "Cache", "Maintenance", "Results", "Stored", "Writer"]
