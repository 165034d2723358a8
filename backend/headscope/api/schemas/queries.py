"""Schemas of queries for heads, and of sentences in plain English."""

from __future__ import annotations

from typing import Literal

from ...query.english.sentence import Slot
from .common import Strict


class FoundHead(Strict):
    """A head that satisfies a query. `values` are the values the query refers to, by name: a number, the name of a class, or null if undefined."""

    layer: int
    head: int
    values: dict[str, float | str | None]


class FoundHeads(Strict):
    """The heads that satisfy a query, best first. `query` is the query as it was parsed; `of` is the number of heads searched.

    `ranked_by` is the measure that orders them, descending (desc) or ascending (asc); null: ordered by layer and head.
    """

    query: str
    ranked_by: str | None
    direction: Literal["asc", "desc"]
    of: int
    heads: list[FoundHead]


class AskedPart(Strict):
    """One parsed part of a sentence, and the words it was parsed from.

    where: a condition of the query. order: its sort key. limit: number of heads. lens: the lens to show; compare, difference: a second lens beside it, or
    subtracted from it. measure: the measure to colour heads by. head: the head to open, or `best`: the first that is found. pair: a second head beside it.
    edge: `strongest`, the connection of the open head to pin. query, key: indices of tokens along that axis. chart: a measure, and a layer or head.
    special: `hide`, `show` or `mark` special tokens. explain: a measure, class or lens. count: the number of heads found is the answer.
    page: `reset`, `help`, `dark`, `light` or `measures`.
    """

    slot: Slot
    value: str
    said: str


class AskedView(Strict):
    """The view that a sentence asks for. `query` selects the heads; `measures` must be computed for it; `parts` explain the parse; `notes` are hints."""

    query: str
    measures: list[str]
    parts: list[AskedPart]
    notes: list[str]


class AskedChoice(Strict):
    """One possible answer to a question, and the sentence to send for it."""

    label: str
    ask: str


class AskedQuestion(Strict):
    """A question that resolves an ambiguous or unknown phrase."""

    text: str
    choices: list[AskedChoice]


class Asked(Strict):
    """How a sentence was understood: a view, or a question if it is ambiguous or unknown."""

    view: AskedView | None
    question: AskedQuestion | None
