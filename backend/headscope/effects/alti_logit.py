"""What every head adds to a logit on the direct path, by token of the input instead of token of the layer below."""

from __future__ import annotations

from ..core.lazy import Tensor
from .base import EffectMethod, EffectParams


def traced(cells: Tensor, before: Tensor) -> Tensor:
    """Return the contributions of heads [..., K] by input token, [..., K]; `before` [K, K] are the shares of each input token in each token below the layer."""
    return cells.double() @ before.double()


ALTI_LOGIT = EffectMethod(
    name="alti-logit",
    title="ALTI-Logit",
    doc="The direct contribution of every head, split among the tokens of the input: what it takes from a token below its layer counts for the input tokens "
    "that are in it, by their shares according to ALTI. Its map has one row: that of the token at which the model predicts.",
    not_="Not what the input tokens do to the logit: feed-forward parts and the embedding are left out, and shares of distances say nothing of what is passed on.",
    citation="Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions, sec. 3",
    params=EffectParams,
    unit="logits",
    needs=("values", "projection", "residual", "same-tokens", "one-text", "equal-heads"),
    activations=14,
    maps=True,
)
