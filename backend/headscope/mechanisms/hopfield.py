"""Modern Hopfield attention: scores carry over from layer to layer (Masumura & Taki 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..errors import Unsupported
from .base import Mechanism, Pass, PassContext, Scores


class HopfieldParams(Params):
    """How much of the scores of earlier layers is kept, and the state before the first layer."""

    alpha: float = Field(
        default=0.5,
        ge=0,
        lt=1,
        description="Share of the hidden state that is kept from layer to layer (the paper's alpha'). 0 leaves the model unchanged.",
    )
    initial: Literal["zero", "first"] = Field(
        default="zero",
        description='Hidden state before the first layer: "zero", so that the first layer\'s scores are multiplied by 1 - alpha, '
        'or "first", which leaves the first layer unchanged.',
    )


@dataclass
class _Hopfield(Pass):
    """A pass with a `state` [H, Q, K], never masked: of this layer for heads already computed, of the layer before for the others. `start` is the first layer."""

    params: HopfieldParams
    heads: int
    start: int = 0
    state: Tensor | None = None

    def attend(self, scores: Scores) -> Tensor:
        logits = scores.logits(scores.products())
        if self.params.alpha == 0:
            return scores.softmax(logits)
        state, block = self._state(scores.layer, logits), list(scores.heads)
        whole = len(block) == self.heads
        keep = 0.0 if self.params.initial == "first" and scores.layer == self.start else self.params.alpha
        hidden = torch.add((state if whole else state[..., block, :, :]) * keep, logits, alpha=1 - keep)  # [H, Q, K]
        if whole:
            self.state = hidden  # a new tensor, since gradients may need the old one
        else:
            state[..., block, :, :] = hidden
        return scores.softmax(hidden.to(logits.dtype, copy=True))

    def _state(self, layer: int, logits: Tensor) -> Tensor:
        size = logits.shape[-2:]
        if self.state is None:
            # Half precision would lose small changes over many layers.
            dtype = torch.promote_types(logits.dtype, torch.float32)
            shape = (*logits.shape[:-3], self.heads, *size)
            self.state, self.start = logits.new_zeros(shape, dtype=dtype), layer
        if self.state.shape[-2:] != size:
            raise Unsupported(
                "Hopfield attention carries scores from layer to layer, but the number of tokens differs between layers: in this model, or in a cache of "
                "windows. Choose another mechanism, or pass use_cache=False.",
                pointer="/mechanism",
            )
        return self.state


def begin(params: HopfieldParams, context: PassContext) -> Pass:
    """Return the pass with scores h_l = alpha h_(l-1) + (1 - alpha) logits_l. Raises Unsupported if layers differ in their number of heads."""
    counts = set(context.heads.values())
    if len(counts) > 1:
        raise Unsupported(
            "Hopfield attention carries the scores of every head to the next layer, but the layers of this model differ in their number of heads. "
            "Choose another mechanism.",
            pointer="/mechanism",
        )
    return _Hopfield(params, max(counts, default=0))


HOPFIELD = Mechanism(
    name="hopfield",
    title="Hopfield",
    doc="Every layer's scores are a running mean over the layers up to it: alpha times the scores used by the layer before, plus 1 - alpha times its own.",
    not_="Not what a model does unless it was trained this way; for other models it is a what-if. The residual connection is unchanged: "
    "the paper's second coefficient, for the visible state, is not applied.",
    citation="Masumura & Taki 2025, On the Role of Hidden States of Modern Hopfield Network in Transformer, appendix, eqs. 14-15",
    range=(0.0, 1.0),
    params=HopfieldParams,
    needs=("capture", "equal-heads"),
    begin=begin,
    softmax=False,
)
