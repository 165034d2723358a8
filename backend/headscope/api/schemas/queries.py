"""What is answered to a query for heads, and to a sentence."""

from __future__ import annotations

from typing import Literal

from .analyses import Strict


class FoundHead(Strict):
    """A head that satisfies a query. `values`: what it was judged by, under the names in the query; a class is its name, null is no reading."""

    layer: int
    head: int
    values: dict[str, float | str | None]


class FoundHeads(Strict):
    """The heads that satisfy a query, the best first. `query` is the query as it was understood, `of` how many heads there are.

    `ranked_by` is the measure that orders them, from the largest (desc) or the smallest (asc); null: in order of layers and heads.
    """

    query: str
    ranked_by: str | None
    direction: Literal["asc", "desc"]
    of: int
    heads: list[FoundHead]


class AskedPart(Strict):
    """One thing that was understood, and the words that said so.

    where: a condition of the query. order: what it is ordered by. limit: how many heads. lens: what to read through; compare: the lens beside it. measure:
    what to colour heads by. head: the head to open. query, key: numbers of the tokens that look, or are looked at. chart: a measure, and layer or head.
    """

    slot: Literal["where", "order", "limit", "lens", "compare", "measure", "head", "query", "key", "chart"]
    value: str
    said: str


class AskedView(Strict):
    """What a sentence asks to see. `query` finds the heads; `measures` must be computed for it; `parts` say it piece by piece; `notes` are what to know."""

    query: str
    measures: list[str]
    parts: list[AskedPart]
    notes: list[str]


class AskedChoice(Strict):
    """One answer to a question, and the sentence to ask instead."""

    label: str
    ask: str


class AskedQuestion(Strict):
    """What has to be known first."""

    text: str
    choices: list[AskedChoice]


class Asked(Strict):
    """Either a view, or a question where the sentence has two meanings or none."""

    view: AskedView | None
    question: AskedQuestion | None
