"""Jump self-attention: scores are mixed with those of tokens tied by the same keys (Zhou et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ..core.declarations import Params
from ..core.lazy import Tensor
from ..core.ties import RHO, Rho, Signed, adjacency
from ..errors import InvalidRequest, Unsupported
from .base import Mechanism, Pass, PassContext, Scores

# Layers, of 12, that the published code mixes by default, counted from 0.
PUBLISHED = frozenset({1, 2, 3, 8, 9, 10})

Place = Annotated[int, Field(ge=0, le=9_999)]


class JumpParams(Params):
    """Which tokens are tied, how that changes the scores, and in which heads."""

    rho: Rho = RHO
    mix: float = Field(default=0.5, ge=0, le=1, description="Share of the jump scores; the rest are the head's own.")
    order: int = Field(default=1, ge=1, le=8, description="Jumps of up to this many steps are added.")
    layers: list[Place] | None = Field(
        default=None,
        max_length=1_000,
        description="Layers that jump, counted from 0. By default those at the depths of layers 1-3 and 8-10 of 12.",
    )
    heads: list[Place] | None = Field(
        default=None,
        max_length=1_000,
        description="Heads that jump in each of these layers, counted from 0. By default every second one: 0, 2, 4, ... An empty list changes nothing.",
    )
    signed: Signed = False


@dataclass
class _Jump(Pass):
    params: JumpParams
    layers: frozenset[int]
    heads: frozenset[int]

    def attend(self, scores: Scores) -> Tensor:
        products = scores.products()  # [H, N, N]
        jumping = [place for place, head in enumerate(scores.heads) if head in self.heads]
        if scores.layer in self.layers and jumping:
            mixed, query, key = (part[..., jumping, :, :] for part in (products, scores.query, scores.key))
            products[..., jumping, :, :] = self._mixed(mixed, query, key, _real(scores))
        return scores.softmax(scores.logits(products))

    def _mixed(self, products: Tensor, query: Tensor, key: Tensor, real: Tensor | None) -> Tensor:
        """(1 - mix) S + mix sum_t A~^t S A~^t of each head, [H, N, N]; A~^t S A~^t = (A~^t Q) (A~^t K)ᵀ costs no N³."""
        ties = adjacency(products, key, self.params.rho, self.params.signed, real).to(products.dtype)
        mixed = products * (1 - self.params.mix)
        for _ in range(self.params.order):
            query, key = ties @ query, ties @ key
            mixed.add_(query @ key.mT, alpha=self.params.mix)
        return mixed


def _real(scores: Scores) -> Tensor | None:
    """Return which tokens queries may see, [1, N], or None for all. The others are padding and not tied. Raises Unsupported if queries differ."""
    if scores.blocked is None:
        return None
    seen = scores.blocked[..., :1, :1, :]
    if bool((scores.blocked != seen).any()):
        raise Unsupported(
            f"Layer {scores.layer} hides some tokens from others, but a jump would reach them. Remove it from the jump layers, "
            "or choose another mechanism.",
            pointer="/mechanism/layers",
        )
    return ~seen[..., 0, :]


def jump_layers(numbers: Sequence[int]) -> frozenset[int]:
    """Return the default layers of a model: those whose middle is in one of the published layers of 12. A model with one layer jumps in it."""
    depth = len(numbers)
    chosen = frozenset(number for place, number in enumerate(numbers) if (2 * place + 1) * 6 // depth in PUBLISHED)
    return chosen or frozenset(numbers)


def begin(params: JumpParams, context: PassContext) -> Pass:
    """Return the pass that mixes the scores of the chosen heads. Raises InvalidRequest for layers or heads that the model does not have."""
    layers = jump_layers(tuple(context.heads)) if params.layers is None else frozenset(params.layers)
    if not layers <= context.heads.keys():
        raise InvalidRequest(
            "This model has no such layer for jump attention, or the layer has no attention. Layers are counted from 0.",
            pointer="/mechanism/layers",
        )
    counts = [context.heads[layer] for layer in layers]
    heads = range(0, max(counts, default=0), 2) if params.heads is None else params.heads
    if params.heads and counts and max(params.heads) >= min(counts):
        raise InvalidRequest(
            f"A jump layer has only {min(counts)} heads. Choose heads below that; they are counted from 0.",
            pointer="/mechanism/heads",
            limit=min(counts) - 1,
            actual=max(params.heads),
        )
    return _Jump(params, layers, frozenset(heads))


JUMP = Mechanism(
    name="jump",
    title="Jump",
    doc="In some heads of some layers the scores are averaged with those of related tokens: tokens that have large scores for the same keys, "
    "so a query can reach a key through a token like itself.",
    not_="Not what a model does unless it was trained with jumps; for other models it is a what-if. The published model was fine-tuned with them. "
    "Not for causal models: a jump would reach future tokens.",
    citation="Zhou et al. 2022, Jump Self-attention: Capturing High-order Statistics in Transformers; thresholds and defaults as in their code for BERT",
    range=(0.0, 1.0),
    params=JumpParams,
    needs=("capture", "same-tokens", "bidirectional"),
    begin=begin,
    softmax=False,
)
