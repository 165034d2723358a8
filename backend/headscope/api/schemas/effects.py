"""Schemas of effects: what heads do to a prediction of an analysis."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ...core.attention import Kind
from .analyses import TokenSchema
from .common import MechanismSchema, Strict
from .single import SingleDocument


class TargetSchema(Strict):
    """The logit, or the difference of two, or the score of a head, by which heads are judged. `value` is in logits, before the cap if the model caps them (`capped`).

    `position` is the token at which the model predicts, or which looks, counted from 0; null for a class of the whole input.
    """

    ids: list[int]
    texts: list[str]
    position: int | None
    value: float
    capped: bool


class PredictionSchema(Strict):
    """One of the most likely tokens, or classes. `probability` is the softmax over all of them."""

    id: int
    text: str
    logit: float | None
    probability: float | None


class WrittenLogitSchema(Strict):
    """A token, or class, and what a head adds to its logit."""

    id: int
    text: str
    logit: float


class TogetherSchema(Strict):
    """What happens when several heads are replaced at once: the effect, and the most likely tokens before and after in the text that is changed."""

    heads: list[str]
    effect: float
    before: list[PredictionSchema]
    after: list[PredictionSchema]


class ScorePairSchema(Strict):
    """What a part of the model brings to a score through the query, times another one through the key: a head (`4.5`), `mlp 3`, `embedding` or `bias`."""

    query: str
    key: str
    value: float


class ScoreSchema(Strict):
    """A score of a head: why the token `query` looks at the token `key`, both counted from 0."""

    query: int
    key: int
    terms: Annotated[
        dict[str, list[float | None]],
        Field(
            description="[K] each, null where the query may not attend: `content`, and where the model has them `rotation`, `cap` and `position`, which sum to `score`; "
            "`weight` is what the softmax makes of it."
        ),
    ]
    pairs: Annotated[
        list[ScorePairSchema] | None,
        Field(
            description="With the parameter `pairs`: the largest of either sign; all of them sum to `content` and `rotation`."
        ),
    ] = None


class EffectResult(Strict):
    """What every head does to the target, in logits. Positive: with the head, the target is larger."""

    model: str
    method: MechanismSchema
    kind: Kind
    target: TargetSchema
    predictions: Annotated[list[PredictionSchema], Field(description="Most likely first, at the target's position.")]
    layers: Annotated[list[int], Field(description="Numbers along axis L.")]
    heads: Annotated[list[int], Field(description="Numbers along axis H.")]
    effects: Annotated[
        list[list[float | None]], Field(description="[L][H]; null for heads that the method leaves out.")
    ]
    shape: Annotated[
        list[int] | None,
        Field(description="[L, H, Q, K] of the maps that `effects` are the sums of; null for methods without maps."),
    ]
    completeness_error: Annotated[
        list[float | None] | None,
        Field(
            description="[L], of integrated gradients: the sum of a layer's effects, minus what the target loses without its attention."
        ),
    ]
    score: Annotated[ScoreSchema | None, Field(description="Of a score, the cell, and what its row is made of.")]
    together: Annotated[TogetherSchema | None, Field(description="What the named heads do at once, if any are named.")]
    sources: Annotated[
        list[list[list[float | None]]] | None,
        Field(description="[L][H][K], the parts of `effects` that each token gives, if they were asked for."),
    ]
    writes: Annotated[
        list[list[list[WrittenLogitSchema]]] | None,
        Field(
            description="[L][H][N], the logits that each head raises and lowers most, if they were asked for, largest first."
        ),
    ]
    parts: Annotated[
        dict[str, list[Any]],
        Field(
            description="Of contributions and scores, everything that sums to the target: heads, feed-forward parts, embedding, biases."
        ),
    ]
    baseline: Annotated[float | None, Field(description="Of patching, the value of the target in the other text.")]
    shares: Annotated[
        list[list[float | None]] | None,
        Field(
            description="[L][H], of patching: `effects` as shares of the difference of the target between the texts."
        ),
    ] = None
    tokens: list[TokenSchema]
    key_tokens: list[TokenSchema]


class EffectDocument(SingleDocument):
    """An effect in any state. `result` is null until it is done."""

    analysis: str
    result: EffectResult | None
