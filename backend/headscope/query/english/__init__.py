"""Plain English as a query: a grammar takes heads, layers, tokens and numbers, and the rest is found by meaning among the phrases of the declarations.

Ambiguous or unknown phrases are never guessed. They become a question whose choices are unambiguous sentences.
"""

from __future__ import annotations

import re

from ...errors import InvalidQuery, InvalidRequest
from ..grammar import MAX_CHARACTERS, clauses, measures_of, parse, write
from .reading import SentenceReader
from .sentence import AmbiguousSentence, Interpretation, RequestedView, Sentence, SentenceContext, ViewPart
from .vocabulary import Encoder


def understand(text: str, context: SentenceContext, encoder: Encoder | None = None) -> Interpretation:
    """Interpret a query or a sentence. Without an encoder only phrases that are known word by word are understood. Raises InvalidQuery for an invalid query."""
    if not isinstance(text, str):
        raise InvalidRequest("A query or sentence is a text.", pointer="/where")
    if len(text) > MAX_CHARACTERS:
        raise InvalidQuery(f"A query or sentence has at most {MAX_CHARACTERS} characters.", MAX_CHARACTERS)
    try:
        return Interpretation(_parse_formal(text))
    except InvalidQuery as error:
        invalid_query = error
    try:
        return Interpretation(SentenceReader(Sentence(text, context), encoder).view())
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
