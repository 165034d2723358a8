"""Finished analyses on disk, named by their content: map files, an index with a quota, and digests that are checked on every read."""

from .results import Results, Stored

__all__ = ["Results", "Stored"]
