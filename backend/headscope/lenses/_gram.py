"""Factors of Gram matrices with proofs about rank, and the decompositions for values without a proof."""

from __future__ import annotations

from ..core.lazy import Tensor, torch

# Errors from the Gram matrix grow like eps(float64) * condition²: 1e-6 at this bound, a hundred times below the promised accuracy.
SAFE_CONDITION = 1e5
# Up to this condition L⁻¹ may be applied in float32, and to the head's output instead of the weights: errors are eps(float32) * condition, at most 1e-5.
DIRECT_CONDITION = 100.0
# Causal rows may be solved in float32 if that enlarges them by at most this factor before it makes them smaller again: errors are eps(float32) * gain², at most 1e-5.
DIRECT_GAIN = 8.0
# Rows decomposed or factorised at once; bounds the scratch memory to a few tens of MB.
ROWS = 48


def safe_condition(n: int, width: int, epsilon: float) -> float:
    """Return the largest condition number at which full rank is certain."""
    return min(SAFE_CONDITION, 0.5 / (max(n, width) * epsilon))


def gram_matrix(V: Tensor) -> Tensor:
    """Return V Vᵀ or Vᵀ V of values [..., N, D], whichever is smaller."""
    return V @ V.mT if V.shape[-2] <= V.shape[-1] else V.mT @ V


def factorise(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Factorise gram [..., D, D] = L Lᵀ and return L⁻¹ and an upper bound of the condition number of V, [...] (inf where there is none).

    cond(V)² = lambda_max / lambda_min <= |G|_F |G⁻¹|_F.
    """
    factor, failed = torch.linalg.cholesky_ex(gram)
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    if gram.device.type != "cpu" or bool(failed.any()):  # elsewhere asking takes longer than replacing
        factor = torch.where((failed == 0)[..., None, None], factor, identity)
    inverse = torch.linalg.solve_triangular(factor, identity.expand_as(gram), upper=False)
    bound = (gram.norm(dim=(-2, -1)) * (inverse.mT @ inverse).norm(dim=(-2, -1))).sqrt()
    return inverse, torch.where((failed == 0) & bound.isfinite(), bound, torch.inf)


def decompose(V: Tensor, n: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return left singular vectors [K, r] of V [K, D] and its r singular values that are not zero."""
    U, sigma, _ = torch.linalg.svd(V, full_matrices=False)
    significant = sigma > sigma[0] * max(n, V.shape[1]) * epsilon
    return U[:, significant], sigma[significant]


def decomposed_rows(weights: Tensor, V: Tensor, mask: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return projected rows and their kept share under any mask [Q, K], with one decomposition per row, batched. Slow but right for any mask, and for near-dependent values."""
    groups, _, width = V.shape
    per_group = weights.shape[0] // groups
    projected, kept = torch.empty_like(weights), weights.new_empty(weights.shape[:2])
    for group in range(groups):
        heads = slice(group * per_group, (group + 1) * per_group)
        for low in range(0, mask.shape[0], ROWS):
            rows = slice(low, low + ROWS)
            # Zeros for masked keys do not change the singular vectors of non-zero singular values.
            U, sigma, _ = torch.linalg.svd(V[group] * mask[rows, :, None], full_matrices=False)  # [R, K, m]
            counts = mask[rows].sum(-1).clamp_min(width)
            significant = sigma > sigma[:, :1] * counts[:, None] * epsilon
            U = U * significant[:, None, :] * mask[rows, :, None]
            exact = weights[heads, rows].double()
            coordinates = torch.einsum("hrk,rkm->hrm", exact, U)
            independent = significant.sum(-1) == mask[rows].sum(-1)  # no null space: the row stays as it is
            result = torch.einsum("hrm,rkm->hrk", coordinates, U)
            projected[heads, rows] = torch.where(independent[None, :, None], exact, result).to(weights.dtype)
            share = (coordinates.square().sum(-1) / squared_norms(exact)).clamp(0, 1)
            kept[heads, rows] = torch.where(independent, 1.0, share).to(kept.dtype)
    return projected, kept


def squared_norms(rows: Tensor) -> Tensor:
    """Return the squared norms of rows [..., K] as divisors, which are not zero, [...]."""
    return divisors(torch.linalg.vector_norm(rows, dim=-1).square())


def divisors(norms: Tensor) -> Tensor:
    """Return squared norms as divisors: in place of 0, which has nothing to share out, the smallest normal number."""
    return norms.clamp_min(torch.finfo(norms.dtype).tiny)


def kept_share(coordinates: Tensor, norms: Tensor) -> Tensor:
    """Return the share of the squared norms [...] of rows that is in their coordinates [..., D] of an orthonormal basis, [...]."""
    return (coordinates.square().sum(-1) / norms).clamp(0, 1)


def expansion(coefficients: Tensor, basis: Tensor, out: Tensor | None) -> Tensor:
    """Return the rows with these coefficients [H, R, D] in a basis [G, k, D], [H, R, k], in `out` or a new tensor: the heads of a group share its basis."""
    (heads, rows, width), (groups, keys, _) = coefficients.shape, basis.shape
    out = None if out is None else out.view(groups, -1, keys)
    return torch.matmul(coefficients.reshape(groups, -1, width), basis.mT, out=out).view(heads, rows, keys)


def repeat_heads(per_group: Tensor, heads: int) -> Tensor:
    return per_group if heads == 1 else per_group.repeat_interleave(heads, dim=0)
