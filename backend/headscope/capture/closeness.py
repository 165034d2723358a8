"""Whether two computations of the same numbers agree, up to the rounding of their arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor

TOLERANCE = 1e-5
ROUNDINGS = 4  # multiple of the arithmetic's epsilon that is tolerated in half precision


def is_close(ours: Tensor, theirs: Tensor, limit: float | None = None) -> bool:
    """Return whether two tensors have the same shape and differ by at most `limit`, relative to the largest entry if that is above 1.

    By default the limit is the `tolerance` of their dtype.
    """
    if ours.shape != theirs.shape:
        return False
    limit = tolerance(theirs.dtype) if limit is None else limit
    return bool((ours - theirs).abs().max().item() <= limit * max(1.0, theirs.abs().max().item()))


def tolerance(dtype: torch.dtype) -> float:
    """Return the largest difference between equal computations: 1e-5, or four roundings of the arithmetic if that is more."""
    return max(TOLERANCE, ROUNDINGS * torch.finfo(dtype).eps)
