"""Why a head looks where it looks: the scores of a query split into terms, and one of them into what the parts of the model below bring to it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..core.attention import ScoreTerms
from ..core.declarations import HeadName
from ..core.lazy import Tensor, torch
from .base import EffectMethod, EffectParams


class ScoreParams(EffectParams):
    """Which score."""

    head: HeadName = Field(description='The head that looks, as layer.head counted from 0 ("4.5").')
    query: int = Field(
        default=-1,
        ge=-1_000_000,
        le=1_000_000,
        description="The token that looks, counted from 0, or from the end if negative. By default the last one.",
    )
    key: int | None = Field(
        default=None,
        ge=-1_000_000,
        le=1_000_000,
        description="The token that it looks at. By default the one with the largest weight.",
    )
    side: Literal["query", "key"] = Field(
        default="query",
        description='"query" splits what the query token brings to the score while the key stays, "key" what the key token brings while the query stays.',
    )
    pairs: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Also report this many pairs of a part of the query side and a part of the key side: those that bring most to the score, of either sign.",
    )


def products_of_pairs(query: Tensor, key: Tensor, scaling: float) -> Tensor:
    """Return what each pair of parts brings to a score, [n, m] in float64: of the parts of a query [n, D'] and of a key [m, D']."""
    return query.double() @ key.double().mT * scaling


def split_scores(query: Tensor, keys: Tensor, terms: ScoreTerms, turn: Tensor | None, place: int) -> dict[str, Tensor]:
    """Return the scores [K] of the query at `place`, before the mask, and the terms that sum to them, in float64.

    query [D'], keys [K, D'], bias of `terms` [1, 1, K]. `turn` [D', D'] rotates queries and keys from one token to the next: "content" is the product of the
    query and each key turned to the same place, "rotation" what their distance changes. "cap" is what a soft cap changes, "position" what is added after it.
    Terms that a model does not have are left out.
    """
    query, keys = query.double(), keys.double()
    products = keys @ query * terms.scaling
    found = {"content": products}
    if turn is not None:
        found["content"] = (turned(query, turn.double(), place, len(keys)) * keys).sum(-1) * terms.scaling
        found["rotation"] = products - found["content"]
    if terms.softcap is not None:
        found["cap"] = (products / terms.softcap).tanh() * terms.softcap - products
    if terms.bias is not None:
        found["position"] = terms.bias[0, 0].double()
    return {**found, "score": torch.stack(list(found.values())).sum(0)}


def turned(query: Tensor, turn: Tensor, place: int, count: int) -> Tensor:
    """Return the query [D'] of the token at `place` as it would be at each of `count` tokens, [count, D']."""
    rows = query.expand(count, -1).clone()
    for row in range(place + 1, count):
        rows[row] = rows[row - 1] @ turn
    for row in reversed(range(min(place, count))):
        rows[row] = rows[row + 1] @ turn.mT
    return rows


def weights_of(scores: Tensor, sink: Tensor | None) -> Tensor:
    """Return the weights [K] of a row of scores, -inf where the query may not attend, beside the score of a learned sink [1, 1, 1]."""
    if sink is None:
        return scores.softmax(-1)
    return torch.cat([scores, sink.flatten().to(scores)]).softmax(-1)[:-1]


SCORE = EffectMethod(
    name="score",
    title="Score of a cell",
    doc="Why a head looks from one token to another: the score before the softmax, split into content, distance and what is added by position, "
    "and into what every earlier head, the feed-forward parts, the embedding and the biases bring to it through the query, or through the key.",
    not_="Not the weight: the softmax compares the score with those of all other keys. Not both sides at once either: a score is a product, so the parts of "
    "one side count for the other side as it is. Only the direct path, with every normalisation held fixed.",
    citation="Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; Su et al. 2021, RoFormer, sec. 3.2",
    params=ScoreParams,
    unit="logits",
    needs=("scores", "bilinear", "projection", "equal-heads"),
    activations=14,
    of="score",
)
