"""Plain words -> what they ask to see, by a fixed grammar: rules take what they know from the sentence, and whatever is left over is asked about.

Nothing is guessed: what has two meanings, or none, becomes a question whose choices are sentences that have one. The grammar is English.
"""

from __future__ import annotations

import re

from ...errors import InvalidQuery
from ..grammar import MOST_CHARACTERS, clauses, measures_of, parse, write
from .rules import read
from .sentence import Alternative, Interpretation, Question, RequestedView, Scene, Sentence, Unsure, ViewPart

__all__ = ["Alternative", "Interpretation", "Question", "RequestedView", "Scene", "ViewPart", "understand"]


def understand(text: str, scene: Scene) -> Interpretation:
    """A query, or a sentence, about the scene. Raises InvalidQuery for what is meant as a query and is none."""
    if len(text) > MOST_CHARACTERS:
        raise InvalidQuery(f"At most {MOST_CHARACTERS} characters can be read.", MOST_CHARACTERS)
    try:
        return Interpretation(_formal(text))
    except InvalidQuery as error:
        wrong = error
    try:
        return Interpretation(read(Sentence(text, scene)))
    except Unsure as unsure:
        # Who writes signs writes a query; the sentence about its fault helps more than a question about words.
        if re.search(r"[<>=()@#]", text) and not unsure.question.choices:
            raise wrong from None
        return Interpretation(question=unsure.question)


def _formal(text: str) -> RequestedView:
    query = parse(text)
    parts = [ViewPart("where", clause, clause) for clause in clauses(query)]
    if query.order is not None:
        order = f"order by {query.order.name} {query.direction}"
        parts.append(ViewPart("order", order, order))
    if query.limit is not None:
        parts.append(ViewPart("limit", str(query.limit), f"limit {query.limit}"))
    return RequestedView(write(query), measures_of(query), parts, [])
