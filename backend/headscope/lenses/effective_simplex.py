"""Effective attention whose rows still sum to 1."""

from __future__ import annotations

from typing import Any

from ..core.attention import Layer, Reading
from ..core.lazy import torch
from ._rowspace import project
from .base import Lens


def read(layer: Layer, params: Any) -> Reading:
    """Weights projected on the column space of [V, 1]. [H, Q, K], signed, rows sum to what those of the weights do: to 1, or less beside a learned sink.

    Alternatives A + N that keep the output and are still row-stochastic need N V = 0 and N 1 = 0, so this takes out only what could be exchanged
    without leaving the simplex. Unlike `effective` it does not depend on the bias of the value projection.
    """
    # The column of ones is scaled to the size of the values' columns: the space is the same, the condition number smaller.
    scale = layer.values.double().square().mean(dim=(1, 2)).sqrt().clamp_min(torch.finfo(torch.float64).tiny)
    ones = scale[:, None, None].expand(-1, layer.values.shape[1], 1)
    per_group = layer.weights.shape[0] // layer.values.shape[0]
    # What the weights make of that column.
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
    doc="The part of the weights that reaches the head's output, among maps whose rows still sum to 1, so it can be compared with the weights on one scale.",
    not_="Not a probability distribution: entries can be negative although rows sum to 1. Like effective attention it is one representative of many maps with the same output.",
    citation="Null space of [V, 1]; after Sun & Marasović 2021, app. A, and Brunner et al. 2020",
    needs=("values",),
    signed=True,
    beyond=1,
    read=read,
)
