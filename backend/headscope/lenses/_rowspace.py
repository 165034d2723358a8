"""Projection of attention rows on the column space of the values: P = V V⁺, for each row on the keys that it may see.

The obvious way is one singular value decomposition per head (and, in a causal model, one per row). The same follows from the Gram matrix Vᵀ V, which is
only D × D, by a Cholesky factorisation in float64: Q = V L⁻ᵀ has orthonormal columns. That squares the condition number, so it is used only if a bound
on the condition number, computed from the factor itself, proves that no singular value is near the threshold below which it counts as zero. Heads
(and rows) without that proof are decomposed.
"""

from __future__ import annotations

from ..core.attention import Keys, Reading, Span
from ..core.lazy import Tensor, torch
from ..errors import Unsupported
from ._causal import project_prefix
from ._gram import (
    DIRECT_CONDITION,
    decompose,
    decomposed_rows,
    factorise,
    gram_matrix,
    repeat_heads,
    safe_condition,
    squared_norms,
)


def project(weights: Tensor, values: Tensor, output: Tensor, keys: Keys, epsilon: float) -> Reading:
    """Project weights [H, Q, K] with values [G, K, D] and output = weights @ values [H, Q, D]: map [H, Q, K], rank, condition, kept share, leverage, and span.

    There is no span under a mask, where every row has a space of its own.

    A singular value counts as zero below sigma_1 * max(K, D) * epsilon, where epsilon is that of the arithmetic the values were computed in.
    Raises Unsupported if that arithmetic is too coarse for the threshold to mean anything (half precision).
    """
    n, width = values.shape[1:]
    if max(n, width) * epsilon > 0.05:
        raise Unsupported(
            "Effective attention needs values computed in float32 or wider: half precision is too coarse to decide a rank. "
            'Set dtype="float32".'
        )
    V = values.double()
    if keys.rule == "all":
        return _project_all(weights, V, output, factorise(gram_matrix(V)), epsilon)
    if keys.rule == "prefix":
        return _project_prefix(weights, V, output, epsilon)
    assert keys.mask is not None  # noqa: S101 - the type of Keys, not a check of input
    return _project_rows(weights, V, output, keys.mask, epsilon)


def _project_all(weights: Tensor, V: Tensor, output: Tensor, factor: tuple[Tensor, Tensor], epsilon: float) -> Reading:
    """Project rows that see every key; `factor` is that of the Gram matrix of the values."""
    groups, n, width = V.shape
    per_group = weights.shape[0] // groups
    span: Span | None = None
    inverse, condition = factor[0], factor[1].clone()
    proven = condition <= safe_condition(n, width, epsilon)
    rank = torch.full((groups,), min(n, width))
    if n <= width:
        projected = weights if bool(proven.all()) else weights.clone()
        kept = torch.ones(weights.shape[:2], dtype=weights.dtype, device=weights.device)
        leverage = torch.ones((groups, n), dtype=V.dtype, device=V.device)
    else:
        direct = bool((condition <= DIRECT_CONDITION).all())
        if direct:
            inverse, V = inverse.to(weights.dtype), V.to(weights.dtype)
        basis = V @ inverse.mT  # [G, K, D], orthonormal columns
        leverage = basis.square().sum(-1).clamp(0, 1)
        basis = basis.to(weights.dtype)
        by_head = repeat_heads(basis, per_group)
        # Coordinates [H, Q, D] of the rows in that basis: weights @ basis, or the same from the head's output, which is known already.
        coordinates = output.to(weights.dtype) @ repeat_heads(inverse, per_group).mT if direct else weights @ by_head
        projected = coordinates @ by_head.mT
        kept = (coordinates.square().sum(-1) / squared_norms(weights)).clamp(0, 1)
        span = Span(coordinates, basis)

    for group in (~proven).nonzero().flatten().tolist():
        U, sigma = decompose(V[group].double(), n, epsilon)
        rank[group] = sigma.numel()
        condition[group] = sigma[0] / sigma[-1] if sigma.numel() else 1.0
        leverage[group] = U.square().sum(-1).to(leverage.dtype)
        if span is not None:
            span.basis[group] = torch.nn.functional.pad(U, (0, width - U.shape[1]))
        for head in range(group * per_group, (group + 1) * per_group):
            if sigma.numel() == n:
                projected[head], kept[head] = weights[head], 1.0
                continue
            exact = weights[head].double() @ U
            if span is not None:
                span.coefficients[head] = torch.nn.functional.pad(exact, (0, width - U.shape[1]))
            projected[head] = (exact @ U.mT).to(weights.dtype)
            kept[head] = (exact.square().sum(-1) / squared_norms(weights[head].double())).clamp(0, 1).to(kept.dtype)
    return Reading(
        projected,
        signed=True,
        rank=repeat_heads(rank, per_group),
        condition=repeat_heads(condition, per_group),
        identical=repeat_heads(rank == n, per_group),
        kept=kept,
        leverage=repeat_heads(leverage.to(weights.dtype), per_group),
        span=span,
    )


def _project_prefix(weights: Tensor, V: Tensor, output: Tensor, epsilon: float) -> Reading:
    """Project causal rows: row i on the values of keys 0..i. The last row sees every key, so rank, condition and leverage are those of all keys."""
    n, width = V.shape[1:]
    projected, kept, factor, span = project_prefix(weights, V, output, epsilon)
    identical = torch.full(weights.shape[:1], n <= width, device=weights.device)
    if n <= width:
        identical &= (projected == weights).all(-1).all(-1)
    whole = _project_all(weights[:, :0], V, output[:, :0], factor, epsilon)
    return Reading(
        projected, True, whole.rank, whole.condition, identical, kept=kept, leverage=whole.leverage, span=span
    )


def _project_rows(weights: Tensor, V: Tensor, output: Tensor, mask: Tensor, epsilon: float) -> Reading:
    """Project rows under any mask [Q, K]."""
    projected, kept = decomposed_rows(weights, V, mask, epsilon)
    whole = _project_all(weights[:, :0], V, output[:, :0], factorise(gram_matrix(V)), epsilon)
    identical = torch.stack([(projected[h] == weights[h]).all() for h in range(weights.shape[0])])
    return Reading(projected, True, whole.rank, whole.condition, identical, kept=kept, leverage=whole.leverage)
