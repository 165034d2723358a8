"""Schemas of what is read from finished analyses: edges, measures and comparisons."""

from __future__ import annotations

from typing import Any, Literal

from .common import Strict


class Edge(Strict):
    """A connection: the query token attends to the key token."""

    layer: int
    head: int
    query: int
    key: int
    weight: float


class Edges(Strict):
    """The strongest connections, by descending magnitude. `total` counts all that the rule selects, including those beyond `limit`."""

    edges: list[Edge]
    total: int


class MeasureValues(Strict):
    """Values of a measure, null where undefined. `axes` names the axes of `values`; `columns` and `units` describe the entries of axis C."""

    name: str
    lens: str
    unit: str
    axes: list[str]
    columns: list[str]
    units: list[str]
    shape: list[int]
    values: list[Any]


class TokenPair(Strict):
    """Aligned tokens of two analyses: token indices and text on both sides."""

    tokens: list[int]
    other_tokens: list[int]
    text: str
    other_text: str


class AlignedTokens(Strict):
    """The alignment of the tokens of two analyses. `share` (0 to 1) is the share of tokens that have a counterpart; `keys` is null if equal to `queries`."""

    by: Literal["token", "word"]
    share: float
    queries: list[TokenPair]
    keys: list[TokenPair] | None


class ComparedAnalyses(Strict):
    """A comparison of the two maps of every head, [L][H], null where undefined. Layers and heads are those of the other analysis."""

    lens: str
    other_lens: str
    by: Literal["token", "word"]
    layer_numbers: list[int]
    head_numbers: list[int]
    cosine: list[list[float | None]]
    js_divergence: list[list[float | None]] | None
