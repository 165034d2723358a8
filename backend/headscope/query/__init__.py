"""Finding heads: a query language over their numbers, and plain sentences in front of it. Knows neither files nor models."""

from __future__ import annotations

from .grammar import Query, measures_of, parse, write
from .language import Asked, Choice, Part, Question, Scene, View, understand
from .search import Found, FoundHead, Subject, find, heads_there

__all__ = [
    "Asked",
    "Choice",
    "Found",
    "FoundHead",
    "Part",
    "Query",
    "Question",
    "Scene",
    "Subject",
    "View",
    "find",
    "heads_there",
    "measures_of",
    "parse",
    "understand",
    "write",
]
