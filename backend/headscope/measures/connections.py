"""What a head's strong connections join: special tokens, tokens of the same entity type, of different types, or other tokens."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..core.tokens import Token
from ._maps import clean
from .base import Measure, is_connection

ENTITIES = ("PER", "LOC", "ORG", "MISC")
COLUMNS = ("edges", "special", *ENTITIES, "same_other", "cross", "other")
SPECIAL, OUTSIDE = "", "O"  # no label is empty
PART = 2**20  # entries converted to float64 at once


class ConnectionsParams(Params):
    """Which edges count."""

    self_edges: bool = Field(False, description="Count what a token gives to itself.")
    deviations: float = Field(
        1.0, ge=0, le=10, description="An edge is an entry above the map's mean plus this many standard deviations."
    )


def looks(token: Token, params: ConnectionsParams) -> object:
    """Look at the entity a token belongs to, and whether it has a label at all."""
    return _entity(token), token.label is None


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: ConnectionsParams) -> Tensor:
    """Return the number of edges, and of edges between each class of tokens, [H, C] in the order of COLUMNS.

    special + the four entity types + same_other + cross + other = edges. Edges are directed from query to key. Without labels all columns but `edges`,
    `special` and `other` are NaN.
    """
    chosen = edges(layer, readings[lens], params)  # [H, Q, K]
    kinds = [_entity(token) for token in layer.axes.keys]
    names = sorted({SPECIAL, OUTSIDE, *ENTITIES, *kinds})
    places = torch.tensor([names.index(kind) for kind in kinds])
    of = torch.nn.functional.one_hot(places, len(names)).float()  # [K, T]
    pairs = of.T @ (chosen.float() @ of)  # [H, T, T], whole numbers below 2^24
    total, same = pairs.sum((-1, -2)), pairs.diagonal(dim1=-2, dim2=-1)  # [H], [H, T]
    at = {name: place for place, name in enumerate(names)}
    found = {name: same[:, at[name]] for name in ENTITIES}
    found["edges"] = total
    found["special"] = pairs[:, at[SPECIAL]].sum(-1) + pairs[..., at[SPECIAL]].sum(-1) - same[:, at[SPECIAL]]
    inner = [at[name] for name in names if name not in (SPECIAL, OUTSIDE)]
    named = pairs[:, inner][..., inner]
    equal = named.diagonal(dim1=-2, dim2=-1).sum(-1)
    found["same_other"] = equal - sum(found[name] for name in ENTITIES)
    found["cross"] = named.sum((-1, -2)) - equal
    found["other"] = total - found["special"] - named.sum((-1, -2))
    if all(token.label is None for token in layer.axes.keys):
        for name in (*ENTITIES, "same_other", "cross"):
            found[name] = torch.full_like(total, torch.nan)
    return torch.stack([found[name] for name in COLUMNS], -1)


def edges(layer: Layer, reading: Reading, params: ConnectionsParams) -> Tensor:
    """Return the entries above mean + deviations * standard deviation of the head's map, [H, Q, K] (bool).

    Both are over the entries that the mask allows, in rows with a reading; the deviation is that of the population. Sums are in float64, in which the
    mean of equal entries is that entry itself, so a uniform map has no edge. Zeros are never edges.
    """
    rows, there = clean(reading)
    # Masked entries are 0 and add nothing to the sums.
    number = (there * layer.keys.counts(*rows.shape[1:])).sum(-1)  # [H]
    # A few queries at once, because a float64 copy of a long map is large.
    step = max(1, PART // (rows.shape[0] * rows.shape[2]))
    parts = [_moments(rows[:, start : start + step]) for start in range(0, rows.shape[1], step)]
    sums = torch.stack(parts).sum(0) / number  # [2, H]
    least = sums[0] + params.deviations * (sums[1] - sums[0] ** 2).clamp_min(0).sqrt()
    # The largest float32 that is not above it: a float32 entry exceeds either of them or neither.
    rounded = least.float()
    rounded = torch.where(rounded > least, rounded.nextafter(torch.tensor(-torch.inf)), rounded)
    found = rows > rounded[:, None, None]
    if bool((rounded < 0).any()):
        found &= rows != 0
    if not params.self_edges:
        found.diagonal(dim1=-2, dim2=-1).fill_(False)
    return found


def _moments(rows: Tensor) -> Tensor:
    """Return sum and sum of squares, in float64. [H, Q, K] -> [2, H]."""
    rows = rows.double().flatten(1)
    return torch.stack([rows.sum(-1), rows.norm(dim=-1).square()])


def _entity(token: Token) -> str:
    """Return the type of a token's label without its prefix B-, I- (or E-, S-, L-, U-); O where there is none."""
    if token.kind == "special":
        return SPECIAL
    prefix, dash, kind = (token.label or OUTSIDE).partition("-")
    return kind if dash and kind and len(prefix) == 1 and prefix in "BIESLU" else token.label or OUTSIDE


CONNECTIONS = Measure(
    name="connections",
    title="Connections by entity type",
    doc="How many strong connections (entries above the map's mean plus one standard deviation) join special tokens, two tokens of one entity type, "
    "tokens of two types, or other tokens. The entity labels are part of the request.",
    not_="Not how strong connections are, and not comparable between texts of different length: counts grow with the number of tokens. A connection is not a relation "
    "that the model knows.",
    citation="Zhou et al. 2022, Jump Self-attention, case study (fig. 2, appendix E); this page documents what it leaves open",
    params=ConnectionsParams,
    range=(0.0, None),
    unit="edges",
    shape="L H C",
    columns=COLUMNS,
    phrases={"edges": ("strong connections", "number of edges", "number of connections")},
    needs=("kinds", "same-tokens"),
    accepts=is_connection,
    compute=compute,
    looks=looks,
)
