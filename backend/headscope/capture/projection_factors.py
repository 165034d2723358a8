"""What is made of an output projection once, and not once per pass: the smallest matrices with the same lengths."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .affine import fixed_vector, matrix, unchanged
from .sites import split_projection

# Module -> a mark of its weights as they were, and the factors made of them.
_known: WeakKeyDictionary[Any, tuple[Tensor, Tensor]] = WeakKeyDictionary()


def projection_factors(module: Any, heads: int) -> Tensor:
    """R [H, D, D] in float64 with ||x R_h|| = ||x W_h|| for every x, W_h [D, d] being a head's part of the output projection.

    They are remembered, and made anew when the weights have changed, however that was done.
    """
    rows, known = matrix(module), _known.get(module)
    mark = rows @ fixed_vector(rows.shape[1], rows)  # as cheap as one token's projection
    if known is None or known[1].shape[0] != heads or not unchanged(known[0], mark):
        known = _known[module] = mark, _factors(split_projection(module, heads))
    return known[1]


def _factors(projection: Tensor) -> Tensor:
    """W Wᵀ = U Λ Uᵀ, so R = U Λ^½. Lengths are then right to 1e-8 of the longest possible one, less than float32 rounds."""
    # Head by head: all of the projection in float64 can be large.
    grams = torch.stack([wide @ wide.mT for wide in (part.double() for part in projection)])
    values, vectors = torch.linalg.eigh(grams)
    factors: Tensor = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)
    return factors
