"""Small square factors of an output projection that preserve lengths, cached across passes."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .affine import fingerprint, is_unchanged
from .sites import split_projection

# Module -> a fingerprint of its weights, and their factors.
_known: WeakKeyDictionary[Any, tuple[Tensor, Tensor]] = WeakKeyDictionary()


def projection_factors(module: Any, heads: int, like: Tensor) -> Tensor:
    """Return R [H, D, D] in float64 with ||x R_h|| = ||x W_h|| for every x, where W_h [D, d] is a head's part of the output projection.

    On the device of `like`. Cached until the weights change in any way.
    """
    found, known = fingerprint(module), _known.get(module)
    if known is None or known[1].shape[0] != heads or not is_unchanged(known[0], found):
        known = _known[module] = found, _factors(split_projection(module, heads, like))
    return known[1].to(like.device)


def _factors(projection: Tensor) -> Tensor:
    """Return R = U Λ^½ from W Wᵀ = U Λ Uᵀ. Lengths are accurate to 1e-8 of the longest possible one, better than float32 rounding."""
    # Head by head: the whole projection in float64 can be large.
    grams = torch.stack([wide @ wide.mT for wide in (part.double() for part in projection)])
    values, vectors = torch.linalg.eigh(grams)
    factors: Tensor = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)
    return factors
