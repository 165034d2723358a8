"""Summaries of singular values: several ways to count the dimensions that a matrix uses. All take sigma [..., r], largest first, in float64."""

from __future__ import annotations

from ..core.lazy import Tensor, torch

# A cumulative share that misses its target by no more than this, which is rounding, has reached it.
ROUNDING = 1e-9


def relative(sigma: Tensor) -> Tensor:
    """sigma / sigma_1, so that powers neither overflow nor underflow; zeros stay zeros."""
    return sigma / sigma[..., :1].where(sigma[..., :1] > 0, 1.0)


def numerical(sigma: Tensor, size: int, epsilon: float) -> Tensor:
    """Number of sigma > sigma_1 * size * epsilon, [...], where size is the larger side of the matrix."""
    return (sigma > sigma[..., :1] * size * epsilon).sum(-1).to(sigma.dtype)


def stable(sigma: Tensor) -> Tensor:
    """sum sigma² / sigma_1², [...], 1..r; 0 for a matrix of zeros."""
    return relative(sigma).square().sum(-1)


def effective(sigma: Tensor) -> Tensor:
    """exp(-sum p ln p) with p = sigma / sum sigma (Roy & Vetterli 2007), [...], 1..r; 0 for a matrix of zeros."""
    total = sigma.sum(-1, keepdim=True)
    entropy: Tensor = torch.special.entr(sigma / total.where(total > 0, 1.0)).sum(-1)
    return entropy.exp() * (total[..., 0] > 0)


def participation(sigma: Tensor) -> Tensor:
    """(sum sigma²)² / sum sigma⁴, [...], 1..r; 0 for a matrix of zeros."""
    energy = relative(sigma).square()
    squares = energy.square().sum(-1)
    return energy.sum(-1).square() / squares.where(squares > 0, 1.0)


def cumulative(sigma: Tensor) -> Tensor:
    """Share of sum sigma² in the first 1, 2, ..., r values, [..., r]; 0 for a matrix of zeros."""
    energy = relative(sigma).square().cumsum(-1)
    total = energy[..., -1:]
    return energy / total.where(total > 0, 1.0)


def dimensions(shares: Tensor, wanted: float) -> Tensor:
    """Smallest number of values that hold the wanted share, from cumulative shares [..., r]: [...], 1..r; 0 for a matrix of zeros."""
    missing = (shares < wanted - ROUNDING).sum(-1) + 1
    return (missing * (shares[..., -1] > 0)).to(shares.dtype)
