"""Finished analyses, named by their content: map files on a shelf, an index with a quota, and digests that are checked on every read."""

from .files import Files
from .hot import Hot
from .housekeeper import Housekeeper
from .inputs import Inputs
from .results import Results, Stored, Writer

__all__ = ["Files", "Hot", "Housekeeper", "Inputs", "Results", "Stored", "Writer"]
