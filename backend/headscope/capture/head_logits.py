"""What each head adds to logits on the direct path, while its graph is in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

MOST_NUMBERS = 2**24  # of logits at once


class WrittenHeads(NamedTuple):
    """The tensor of a layer on which logits depend, what its heads wrote there, [Q, H, D], and the output of the layer, [1, Q, d]."""

    tensor: Tensor
    values: Tensor
    after: Tensor


Written = list[WrittenHeads]
# (logits [vocabulary] or [classes], what was written, size of the tensor of which these logits are a row) -> something for the heads of each layer
LogitReader = Callable[[Tensor, Written, int], Sequence[Any]]


@dataclass(frozen=True)
class ExtremeLogits:
    """The logits that each head raises and lowers most, by what it adds to them: ids and values [H, N], largest first."""

    ids: Tensor
    values: Tensor


def extreme_logits(
    logits: Tensor, written: Written, size: int, *, count: int, matrices: Sequence[Tensor] = ()
) -> list[ExtremeLogits]:
    """Return the `count` logits that each head raises most and the `count` that it lowers most, or all of them if there are no more.

    The path is linear, so its product with a vector is the gradient of its gradient. With `matrices`, [d, d] for each layer, the output of a layer goes through
    its matrix instead of the layers after it, to the output of the last one.
    """
    along = torch.zeros_like(logits, requires_grad=True)
    if matrices:
        end = _slope(logits, written[-1].after, along)
        slopes = [_slope(one.after, one.tensor, end @ matrix) for one, matrix in zip(written, matrices, strict=True)]
    else:
        slopes = list(torch.autograd.grad(logits, [one.tensor for one in written], along, create_graph=True))
    return [
        _extremes(_products(slope.reshape(one.values.shape) * one.values, along, size), count)
        for slope, one in zip(slopes, written, strict=True)
    ]


def _slope(output: Tensor, given: Tensor, along: Tensor) -> Tensor:
    """Return the gradient of the sum of the output times `along`, as a function of the latter."""
    return torch.autograd.grad(output, given, along, create_graph=True)[0]


def chosen_logits(logits: Tensor, written: Written, size: int, *, ids: Sequence[int]) -> list[Tensor]:
    """Return what each head adds to the logits `ids` on the direct path, [H, N] for each layer."""
    chosen = logits[list(ids)]
    units = torch.eye(len(ids), dtype=logits.dtype, device=logits.device)
    tensors = [one.tensor for one in written]
    slopes = torch.autograd.grad(chosen, tensors, units, is_grads_batched=True)  # [N, ...] each
    return [
        (slope.reshape(len(ids), *one.values.shape) * one.values).sum((1, 3)).mT
        for slope, one in zip(slopes, written, strict=True)
    ]


def _products(terms: Tensor, along: Tensor, size: int) -> Tensor:
    """Return the gradient of the sum of each head's terms [Q, H, D] with respect to `along` [V]: [H, V], some heads at a time."""
    sums = terms.sum((0, 2))
    units = torch.eye(len(sums), dtype=sums.dtype, device=sums.device)
    parts = torch.split(units, max(1, MOST_NUMBERS // size))
    found = [torch.autograd.grad(sums, along, part, retain_graph=True, is_grads_batched=True)[0] for part in parts]
    return torch.cat(found)


def _extremes(products: Tensor, count: int) -> ExtremeLogits:
    """Return the largest and the smallest products of every head, of products [H, V]."""
    if products.shape[-1] <= 2 * count:
        values, ids = products.sort(descending=True)
        return ExtremeLogits(ids, values)
    (most, high), (least, low) = (products.topk(count, largest=largest) for largest in (True, False))
    return ExtremeLogits(torch.cat([high, low.flip(-1)], -1), torch.cat([most, least.flip(-1)], -1))
