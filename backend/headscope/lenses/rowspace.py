"""Projection of attention rows on the column space of the values: P = V V⁺, row by row on the keys that the row may see.

The obvious way is one singular value decomposition per head (and, in a causal model, one per row). This gets the same from the Gram matrix Vᵀ V, which is
only D × D, by a Cholesky factorisation in float64: Q = V L⁻ᵀ has orthonormal columns. That squares the condition number, so it is used only where a bound
on the condition number, computed from the factor itself, proves that no singular value is near the threshold below which it counts as zero. Heads
(and rows) without that proof get the decomposition.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import Unsupported
from ..types import Keys, Reading

# Errors of the Gram route grow like eps(float64) * condition²: 1e-6 at this bound, a hundred times below what is promised.
SAFE_CONDITION = 1e5
# Up to here L⁻¹ may be applied in float32, and to the head's output instead of the weights: errors are eps(float32) * condition, 1e-5 at most.
DIRECT_CONDITION = 100.0
# Rows decomposed or factorised at once; bounds the scratch memory to a few tens of MB.
ROWS = 64


def project(weights: Tensor, values: Tensor, output: Tensor, keys: Keys, epsilon: float) -> Reading:
    """weights [H, Q, K], values [G, K, D], output = weights @ values [H, Q, D] -> the projected map [H, Q, K], rank, condition, kept share, leverage.

    A singular value counts as zero below sigma_1 * max(K, D) * epsilon, where epsilon is that of the arithmetic the values were computed in.
    Raises Unsupported when that arithmetic is so coarse that the threshold says nothing (half precision).
    """
    n, width = values.shape[1:]
    if max(n, width) * epsilon > 0.05:
        raise Unsupported(
            "Effective attention needs values computed in float32 or wider: in half precision no rank can be decided. "
            'Ask for dtype="float32".'
        )
    V = values.double()
    if keys.rule == "all":
        return _project_all(weights, V, output, epsilon)
    if keys.rule == "prefix":
        return _project_prefix(weights, V, output, epsilon)
    assert keys.mask is not None  # noqa: S101 - the type of Keys, not a check of input
    return _project_rows(weights, V, output, keys.mask, epsilon)


def _safe(n: int, width: int, epsilon: float) -> float:
    """Largest condition number for which full rank is beyond doubt."""
    return min(SAFE_CONDITION, 0.5 / (max(n, width) * epsilon))


def _factor(gram: Tensor) -> tuple[Tensor, Tensor]:
    """gram [..., D, D] = L Lᵀ -> L⁻¹ and an upper bound of the condition number of V, [...] (inf where it has none).

    cond(V)² = lambda_max / lambda_min <= |G|_F |G⁻¹|_F.
    """
    factor, failed = torch.linalg.cholesky_ex(gram)
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    if bool(failed.any()):
        factor = torch.where((failed == 0)[..., None, None], factor, identity)
    inverse = torch.linalg.solve_triangular(factor, identity.expand_as(gram), upper=False)
    bound = (gram.norm(dim=(-2, -1)) * (inverse.mT @ inverse).norm(dim=(-2, -1))).sqrt()
    return inverse, torch.where((failed == 0) & bound.isfinite(), bound, torch.inf)


def _project_all(weights: Tensor, V: Tensor, output: Tensor, epsilon: float) -> Reading:
    groups, n, width = V.shape
    per_group = weights.shape[0] // groups
    wide = n <= width
    inverse, condition = _factor(V @ V.mT if wide else V.mT @ V)
    proven = condition <= _safe(n, width, epsilon)
    rank = torch.full((groups,), min(n, width))
    if wide:
        projected = weights if bool(proven.all()) else weights.clone()
        kept = torch.ones(weights.shape[:2], dtype=weights.dtype, device=weights.device)
        leverage = torch.ones((groups, n), dtype=V.dtype, device=V.device)
    else:
        direct = bool((condition <= DIRECT_CONDITION).all())
        if direct:
            inverse, V = inverse.to(weights.dtype), V.to(weights.dtype)
        basis = V @ inverse.mT  # [G, K, D], orthonormal columns
        leverage = basis.square().sum(-1).clamp(0, 1)
        by_head = _by_head(basis.to(weights.dtype), per_group)
        # Coordinates [H, Q, D] of the rows in that basis: weights @ basis, or the same from the head's output, which is there already.
        coordinates = output.to(weights.dtype) @ _by_head(inverse, per_group).mT if direct else weights @ by_head
        projected = coordinates @ by_head.mT
        kept = (coordinates.square().sum(-1) / _squared_norms(weights)).clamp(0, 1)

    for group in (~proven).nonzero().flatten().tolist():
        U, sigma = _decompose(V[group].double(), n, epsilon)
        rank[group] = sigma.numel()
        condition[group] = sigma[0] / sigma[-1] if sigma.numel() else 1.0
        leverage[group] = U.square().sum(-1).to(leverage.dtype)
        for head in range(group * per_group, (group + 1) * per_group):
            if sigma.numel() == n:
                projected[head], kept[head] = weights[head], 1.0
                continue
            exact = weights[head].double() @ U
            projected[head] = (exact @ U.mT).to(weights.dtype)
            kept[head] = (exact.square().sum(-1) / _squared_norms(weights[head].double())).clamp(0, 1).to(kept.dtype)
    return Reading(
        projected,
        signed=True,
        rank=_by_head(rank, per_group),
        condition=_by_head(condition, per_group),
        identical=_by_head(rank == n, per_group),
        kept=kept,
        leverage=_by_head(leverage.to(weights.dtype), per_group),
    )


def _decompose(V: Tensor, n: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """V [K, D] -> left singular vectors [K, r] and the r singular values that are not zero."""
    U, sigma, _ = torch.linalg.svd(V, full_matrices=False)
    significant = sigma > sigma[0] * max(n, V.shape[1]) * epsilon
    return U[:, significant], sigma[significant]


def _project_prefix(weights: Tensor, V: Tensor, output: Tensor, epsilon: float) -> Reading:
    """Causal rows: row i on the values of keys 0..i. The last row sees every key, so rank, condition and leverage are those of all keys."""
    n, width = V.shape[1:]
    whole = _project_all(weights[:, -1:], V, output[:, -1:], epsilon)
    start, inverse = _direct_from(V, epsilon)
    projected, kept = (
        torch.empty_like(weights),
        torch.ones(weights.shape[:2], dtype=weights.dtype, device=weights.device),
    )
    head = weights[:, :start, :start], V[:, :start], output[:, :start]
    projected[:, :start, :start], kept[:, :start] = _early_rows(*head, epsilon)
    projected[:, :start, start:] = 0
    if start < n:
        _late_rows(weights, V, output, start, inverse, projected, kept)
    if n > width:
        identical = torch.zeros(weights.shape[0], dtype=torch.bool, device=weights.device)
    else:
        identical = (projected == weights).all(-1).all(-1)
    return Reading(projected, True, whole.rank, whole.condition, identical, kept=kept, leverage=whole.leverage)


def _direct_from(V: Tensor, epsilon: float) -> tuple[int, Tensor]:
    """The row from which on all groups may be solved directly, and L⁻¹ [G, B, D, D] of the Gram matrices of the rows before each block of ROWS from there."""
    groups, n, width = V.shape
    edges = list(range(width, n, ROWS))
    if not edges:
        return n, V.new_empty(groups, 0, width, width)
    blocks = _in_blocks(V[:, width:])
    steps = torch.cat([(V[:, :width].mT @ V[:, :width])[:, None], blocks.mT @ blocks], dim=1)
    grams = steps.cumsum(1)  # [G, B + 1, D, D]: of the rows before block b
    inverse, condition = _factor(grams[:, :-1])
    # The largest singular value grows until the block's last row, and so does what counts as zero beside it.
    spread = condition * (grams.diagonal(dim1=-2, dim2=-1).sum(-1)[:, 1:] / grams[:, :-1].norm(dim=(-2, -1))).sqrt()
    good = ((spread <= _safe(n, width, epsilon)) & (condition <= DIRECT_CONDITION)).all(0)
    bad = (~good).nonzero().flatten().tolist()
    first = bad[-1] + 1 if bad else 0
    return ([*edges, n][first], inverse[:, first:])


def _late_rows(
    weights: Tensor, V: Tensor, output: Tensor, start: int, inverse: Tensor, projected: Tensor, kept: Tensor
) -> None:
    """Rows from `start` on, in blocks: all groups, heads and blocks at once. Fills `projected` and `kept`.

    Row i needs G_i⁻¹ z_i, z_i the head's output, and G_i = G + B_iᵀ B_i: G of the rows before its block, B_i the block's rows up to i. By Woodbury's
    identity that takes (I + B_i G⁻¹ B_iᵀ)⁻¹, and the Cholesky factors of these are the leading parts of a single one.
    """
    groups, n, _ = V.shape
    per_group = weights.shape[0] // groups

    block = inverse @ _in_blocks(V[:, start:]).mT  # [G, B, D, R]
    identity = torch.eye(ROWS, dtype=V.dtype, device=V.device)
    inner = torch.linalg.cholesky(identity + block.mT @ block)[:, None]  # [G, 1, B, R, R]
    block, inverse = block[:, None], inverse[:, None]
    wanted = _in_blocks(output[:, start:].to(V.dtype)).mT
    whitened = inverse @ wanted.reshape(groups, per_group, *wanted.shape[1:])  # [G, P, B, D, R]
    # Column i belongs to row i, which knows the block's rows up to itself only: the upper triangle.
    update = torch.linalg.solve_triangular(inner, block.mT @ whitened, upper=False).triu_()
    update = torch.linalg.solve_triangular(inner.mT, update, upper=True)
    solved = (inverse.mT @ (whitened - block @ update)).mT.flatten(2, 3).flatten(0, 1)[:, : n - start]  # [H, rows, D]
    rows = projected[:, start:]
    keys = _by_head(V.to(weights.dtype), per_group).mT
    torch.bmm(solved.to(weights.dtype), keys, out=rows)
    rows.tril_(start)
    share = (solved * output[:, start:]).sum(-1) / _squared_norms(weights[:, start:])
    kept[:, start:] = share.clamp(0, 1).to(kept.dtype)


def _in_blocks(rows: Tensor) -> Tensor:
    """[G, N, D] -> [G, B, R, D], with rows of zeros at the end."""
    padded = torch.nn.functional.pad(rows, (0, 0, 0, -rows.shape[1] % ROWS))
    return padded.reshape(rows.shape[0], -1, ROWS, rows.shape[2])


def _early_rows(weights: Tensor, V: Tensor, output: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The same group by group, with as few decompositions as the values allow."""
    groups, n, width = V.shape
    per_group = weights.shape[0] // groups
    projected, kept = weights.clone(), torch.ones(weights.shape[:2], dtype=weights.dtype, device=weights.device)
    causal = torch.ones(n, n, dtype=torch.bool, device=V.device).tril()
    head_rows = min(n, width)
    _, condition = _factor(V[:, :head_rows] @ V[:, :head_rows].mT)
    independent = (condition <= _safe(head_rows, width, epsilon)).tolist()
    for group in range(groups):
        heads = slice(group * per_group, (group + 1) * per_group)
        first_safe = _first_safe_row(V[group], epsilon)
        # Rows before `width` keep their weights if the values up to there are independent; the others are decomposed one by one.
        start = head_rows if independent[group] else 0
        if start < first_safe:
            rows, seen = slice(start, first_safe), slice(0, first_safe)  # later keys are hidden from all of them
            part = _project_rows(
                weights[heads, rows, seen], V[group : group + 1, seen], output[heads, rows], causal[rows, seen], epsilon
            )
            projected[heads, rows, seen], kept[heads, rows] = part.map, _required(part.kept)
        for low in range(max(first_safe, head_rows), n, ROWS):
            rows = slice(low, min(low + ROWS, n))
            projected[heads, rows], kept[heads, rows] = _causal_block(weights[heads, rows], V[group], low)
    return projected, kept


def _first_safe_row(V: Tensor, epsilon: float) -> int:
    """First row i such that the values before it, V[:i], prove full column rank; looked for in growing steps, n if there is none.

    Prefix Gram matrices only grow, so once one is well conditioned all later ones are.
    """
    n, width = V.shape
    safe = _safe(n, width, epsilon)
    total = V.square().sum()  # trace(G_n): bounds the largest eigenvalue of every prefix
    row, step = width, 1
    while row < n:
        gram = V[:row].mT @ V[:row]
        _, condition = _factor(gram)
        if bool(condition * (total / torch.linalg.matrix_norm(gram)).sqrt() <= safe):
            return row
        row, step = row + step, min(2 * step, 16)
    return n


def _causal_block(weights: Tensor, V: Tensor, low: int) -> tuple[Tensor, Tensor]:
    """Weights [H, R, K] of rows low, low + 1, ... -> projected rows and their kept share, in float64: as in _late_rows, for one block of one group."""
    high = low + weights.shape[1]
    exact = weights[..., :high].double()
    products = exact @ V[:high]  # [H, R, D], the head's output
    factor = torch.linalg.cholesky(V[:low].mT @ V[:low])
    block = torch.linalg.solve_triangular(factor, V[low:high].mT, upper=False)  # [D, R]
    inner = torch.linalg.cholesky(torch.eye(high - low, dtype=V.dtype, device=V.device) + block.mT @ block)  # [R, R]
    whitened = torch.linalg.solve_triangular(factor, products.mT, upper=False)  # [H, D, R]
    # Column i belongs to row i, which knows the block's rows up to itself only: the upper triangle.
    update = torch.linalg.solve_triangular(inner, block.mT @ whitened, upper=False).triu()
    update = torch.linalg.solve_triangular(inner.mT, update, upper=True)
    solved = torch.linalg.solve_triangular(factor.mT, whitened - block @ update, upper=True).mT  # [H, R, D] = G_i⁻¹ z_i
    projected = torch.zeros_like(weights)
    projected[..., :high] = (solved @ V[:high].mT).tril(low).to(weights.dtype)
    kept = (solved * products).sum(-1) / _squared_norms(exact)
    return projected, kept.clamp(0, 1).to(weights.dtype)


def _project_rows(weights: Tensor, V: Tensor, output: Tensor, mask: Tensor, epsilon: float) -> Reading:
    """Any mask [Q, K]: one decomposition per row, batched. Slow, obvious, and right for sliding windows and near-dependent values."""
    groups, _, width = V.shape
    per_group = weights.shape[0] // groups
    projected, kept = (
        torch.empty_like(weights),
        torch.empty(weights.shape[:2], dtype=weights.dtype, device=weights.device),
    )
    for group in range(groups):
        heads = slice(group * per_group, (group + 1) * per_group)
        for low in range(0, mask.shape[0], ROWS):
            rows = slice(low, low + ROWS)
            # Rows of zeros for forbidden keys leave the non-zero singular vectors as they are.
            U, sigma, _ = torch.linalg.svd(V[group] * mask[rows, :, None], full_matrices=False)  # [R, K, m]
            counts = mask[rows].sum(-1).clamp_min(width)
            significant = sigma > sigma[:, :1] * counts[:, None] * epsilon
            U = U * significant[:, None, :] * mask[rows, :, None]
            exact = weights[heads, rows].double()
            coordinates = torch.einsum("hrk,rkm->hrm", exact, U)
            independent = significant.sum(-1) == mask[rows].sum(-1)  # nothing to take out: the row stays as it is
            result = torch.einsum("hrm,rkm->hrk", coordinates, U)
            projected[heads, rows] = torch.where(independent[None, :, None], exact, result).to(weights.dtype)
            share = (coordinates.square().sum(-1) / _squared_norms(exact)).clamp(0, 1)
            kept[heads, rows] = torch.where(independent, 1.0, share).to(kept.dtype)
    whole = _project_all(weights[:, :1], V, output[:, :1], epsilon)
    identical = torch.stack([(projected[h] == weights[h]).all() for h in range(weights.shape[0])])
    return Reading(projected, True, whole.rank, whole.condition, identical, kept=kept, leverage=whole.leverage)


def _squared_norms(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1).square().clamp_min(torch.finfo(rows.dtype).tiny)
    return norms


def _by_head(per_group: Tensor, heads: int) -> Tensor:
    return per_group if heads == 1 else per_group.repeat_interleave(heads, dim=0)


def _required(value: Tensor | None) -> Tensor:
    assert value is not None  # noqa: S101
    return value
