"""Finding heads: a query language over their numbers, and plain sentences in front of it. Knows neither files nor models."""

from __future__ import annotations

from .english import Alternative, Interpretation, Question, RequestedView, Scene, ViewPart, understand
from .grammar import Query, measures_of, parse, write
from .search import HeadMatch, SearchResult, Subject, find, heads_there

__all__ = [
    "Alternative",
    "HeadMatch",
    "Interpretation",
    "Query",
    "Question",
    "RequestedView",
    "Scene",
    "SearchResult",
    "Subject",
    "ViewPart",
    "find",
    "heads_there",
    "measures_of",
    "parse",
    "understand",
    "write",
]
