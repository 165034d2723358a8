"""Plain English as a query, by a fixed grammar: rules consume the phrases that they know, and Headscope asks about the rest.

Ambiguous or unknown phrases are never guessed. They become a question whose choices are unambiguous sentences.
"""

from __future__ import annotations

import re

from ...errors import InvalidQuery
from ..grammar import MAX_CHARACTERS, clauses, measures_of, parse, write
from .rules import interpret
from .sentence import (
    Alternative,
    AmbiguousSentence,
    Interpretation,
    Question,
    RequestedView,
    Sentence,
    SentenceContext,
    ViewPart,
)

__all__ = ["Alternative", "Interpretation", "Question", "RequestedView", "SentenceContext", "ViewPart", "understand"]


def understand(text: str, context: SentenceContext) -> Interpretation:
    """Interpret a query or a sentence. Raises InvalidQuery for an invalid query."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidQuery(f"A query or sentence has at most {MAX_CHARACTERS} characters.", MAX_CHARACTERS)
    try:
        return Interpretation(_parse_formal(text))
    except InvalidQuery as error:
        invalid_query = error
    try:
        return Interpretation(interpret(Sentence(text, context)))
    except AmbiguousSentence as ambiguous:
        # Text with operators is meant as a query, so its error helps more than a question about words.
        if re.search(r"[<>=()@#]", text) and not ambiguous.question.choices:
            raise invalid_query from None
        return Interpretation(question=ambiguous.question)


def _parse_formal(text: str) -> RequestedView:
    query = parse(text)
    parts = [ViewPart("where", clause, clause) for clause in clauses(query)]
    if query.order is not None:
        order = f"order by {query.order.name} {query.direction}"
        parts.append(ViewPart("order", order, order))
    if query.limit is not None:
        parts.append(ViewPart("limit", str(query.limit), f"limit {query.limit}"))
    return RequestedView(write(query), measures_of(query), parts, [])
