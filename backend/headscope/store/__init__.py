"""Finished analyses, named by their content: map files on a shelf, an index with a quota, and digests that are checked on every read."""

from .cache import Cache
from .files import Files
from .inputs import Inputs
from .maintenance import Maintenance
from .results import Results, Stored, Writer

__all__ = ["Cache", "Files", "Inputs", "Maintenance", "Results", "Stored", "Writer"]
