"""Search for heads: a query language over their numbers, and plain English on top of it. Independent of files and models."""

from __future__ import annotations

from .english import understand
from .english.sentence import Alternative, Interpretation, Question, RequestedView, SentenceContext, ViewPart
from .english.vocabulary import Encoder, known_phrases
from .grammar import Query, measures_of, parse, write
from .search import HeadMatch, SearchResult, SearchSpace, existing_heads, find

__all__ = [
    "Alternative",
    "Encoder",
    "HeadMatch",
    "Interpretation",
    "Query",
    "Question",
    "RequestedView",
    "SearchResult",
    "SearchSpace",
    "SentenceContext",
    "ViewPart",
    "existing_heads",
    "find",
    "known_phrases",
    "measures_of",
    "parse",
    "understand",
    "write",
]
