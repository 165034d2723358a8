"""Effective attention whose rows still sum to 1."""

from __future__ import annotations

from typing import Any

from ..core.attention import Layer, Reading
from ..core.lazy import torch
from ._gate import require_open
from ._rowspace import project
from .base import Lens


def read(layer: Layer, params: Any) -> Reading:
    """Project the weights on the column space of [V, 1]. [H, Q, K], signed; row sums are those of the weights: 1, or less with a learned sink.

    A map A + N with the same output and the same row sums needs N V = 0 and N 1 = 0, so this removes only what could be exchanged without leaving the
    simplex. Unlike `effective` it does not depend on the bias of the value projection.
    """
    require_open(layer)
    # The column of ones is scaled like the values' columns, which gives the same space with a smaller condition number.
    scale = layer.values.double().square().mean(dim=(1, 2)).sqrt().clamp_min(torch.finfo(torch.float64).tiny)  # [G]
    ones = scale[:, None, None].expand(-1, layer.values.shape[1], 1)  # [G, K, 1]
    per_group = layer.weights.shape[0] // layer.values.shape[0]
    # The weights times that column: [G] -> [H, 1, 1], times [H, Q, 1].
    sums = scale.repeat_interleave(per_group)[:, None, None] * layer.weights.sum(-1, keepdim=True)
    return project(
        layer.weights,
        torch.cat([layer.values.double(), ones], dim=-1),
        torch.cat([layer.output.double(), sums], dim=-1),
        layer.keys,
        layer.epsilon,
    )


EFFECTIVE_SIMPLEX = Lens(
    name="effective-simplex",
    title="Effective attention, rows sum to 1",
    doc="The part of the weights that reaches the head's output, among maps whose rows still sum to 1, so that it can be compared with the weights on one scale.",
    not_="Not a probability distribution: entries can be negative although rows sum to 1. Like effective attention, it is one of many maps with the same output.",
    citation="Null space of [V, 1]; after Sun & Marasović 2021, app. A, and Brunner et al. 2020",
    needs=("values",),
    signed=True,
    beyond=1,
    phrases={"": ("simplex",)},
    read=read,
)
