"""Ablation of heads: they attend uniformly, pass nothing on, or are left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from ..core.declarations import HeadName, Params
from ..core.lazy import Tensor, torch
from ..errors import InvalidRequest
from .base import Mechanism, Pass, PassContext, Scores


class AblateParams(Params):
    """Which heads, and how."""

    heads: list[HeadName] = Field(
        default=[],
        max_length=10_000,
        description='Heads to switch off, as layer.head counted from 0: "4.5". An empty list changes nothing.',
    )
    how: Literal["uniform", "zero", "leave-one-out"] = Field(
        default="uniform",
        description='"uniform" spreads every query\'s weight evenly over the keys it may see, "zero" sets all weights to 0, and "leave-one-out" also scales '
        "up the other heads of the layer by h / (h - k), where k of its h heads are left out.",
    )


@dataclass
class _Ablate(Pass):
    how: str
    off: Mapping[int, frozenset[int]]
    heads: Mapping[int, int]

    def attend(self, scores: Scores) -> Tensor:
        weights = super().attend(scores)
        off = self.off.get(scores.layer, frozenset())
        if weights.requires_grad:  # the gradient needs them unchanged
            weights = weights.clone()
        for place, head in enumerate(scores.heads):
            if head in off:
                own = weights[..., place, :, :]
                weights[..., place, :, :] = _uniform(scores, place, own) if self.how == "uniform" else 0
        return weights

    def leave(self, layer: int, heads: tuple[int, ...], output: Tensor) -> Tensor:
        if self.how != "leave-one-out" or layer not in self.off:
            return output
        return output * (self.heads[layer] / (self.heads[layer] - len(self.off[layer])))


def _uniform(scores: Scores, place: int, weights: Tensor) -> Tensor:
    """Return 1 / |K_i| on the keys that query i may see and 0 on the others, shaped like weights [Q, K]. A query of padding may see none."""
    if scores.blocked is None:
        return torch.full_like(weights, 1 / weights.shape[-1])
    masks = scores.blocked.shape[-3]  # one for all heads, or one each
    allowed = ~scores.blocked[..., place % masks, :, :]  # [Q, K]
    return (allowed / allowed.sum(-1, keepdim=True).clamp_min(1)).to(weights.dtype)


def begin(params: AblateParams, context: PassContext) -> Pass:
    """Return the pass without these heads. Raises InvalidRequest for heads that the model does not have, and if no head of a layer is left to scale."""
    heads = context.heads
    off: defaultdict[int, set[int]] = defaultdict(set)
    for name in params.heads:
        layer, head = map(int, name.split("."))
        if head >= heads.get(layer, 0):
            raise InvalidRequest(
                "This model has no such head to ablate, or the layer has no attention. Name heads as layer.head, both counted from 0.",
                pointer="/mechanism/heads",
            )
        off[layer].add(head)
    if params.how == "leave-one-out" and any(len(off[layer]) == heads[layer] for layer in off):
        raise InvalidRequest(
            'Leave-one-out scales up the remaining heads, so leave at least one in every layer, or choose "zero".',
            pointer="/mechanism/heads",
        )
    return _Ablate(params.how, {layer: frozenset(named) for layer, named in off.items()}, heads)


ABLATE = Mechanism(
    name="ablate",
    title="Ablate",
    doc="Some heads are switched off: every query's weight is spread evenly, or set to 0, or the head is left out and the others are scaled up instead.",
    not_="Not a measure of what a head is for: the rest of the model was trained with it, other heads may compensate, and the way it is switched off matters.",
    citation='Kovaleva et al. 2019, sec. 4.6 ("uniform"); Michel et al. 2019 ("zero"); Peng et al. 2020 ("leave-one-out")',
    range=(0.0, 1.0),
    params=AblateParams,
    needs=("capture",),
    begin=begin,
    softmax=False,
)
