"""Projection of attention rows on the column space of the values: P = V V⁺, row by row on the keys that the row may see.

The obvious way is one singular value decomposition per head (and, in a causal model, one per row). This gets the same from the Gram matrix Vᵀ V, which is
only D × D, by a Cholesky factorisation in float64: Q = V L⁻ᵀ has orthonormal columns. That squares the condition number, so it is used only where a bound
on the condition number, computed from the factor itself, proves that no singular value is near the threshold below which it counts as zero. Heads
(and rows) without that proof get the decomposition.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.attention import Keys, Reading
from ..core.lazy import Tensor, torch
from ..errors import Unsupported

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
    factor, failed = torch.linalg.cholesky_ex(
        gram, upper=True
    )  # R with Rᵀ R = G: LAPACK is quicker with that, and with R⁻¹
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    if bool(failed.any()):
        factor = torch.where((failed == 0)[..., None, None], factor, identity)
    inverse = torch.linalg.solve_triangular(factor, identity.expand_as(gram), upper=True, left=False).mT
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


@dataclass(frozen=True)
class _Causal:
    """Causal weights [H, N, N] and values [G, N, D] in float64, and what is filled in row by row: the projected map [H, N, N] and its kept share [H, N]."""

    weights: Tensor
    V: Tensor
    projected: Tensor
    kept: Tensor

    def by_group(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weights, projected map and kept share with heads as [G, P]."""
        one, two, three = (
            part.view(self.V.shape[0], -1, *part.shape[1:]) for part in (self.weights, self.projected, self.kept)
        )
        return one, two, three


def _project_prefix(weights: Tensor, V: Tensor, output: Tensor, epsilon: float) -> Reading:
    """Causal rows: row i on the values of keys 0..i. The last row sees every key, so rank, condition and leverage are those of all keys."""
    n, width = V.shape[1:]
    whole = _project_all(weights[:, -1:], V, output[:, -1:], epsilon)
    task = _Causal(weights.contiguous(), V, weights.new_empty(weights.shape), weights.new_ones(weights.shape[:2]))
    if n > width:
        _long_rows(task, output, epsilon)
        identical = torch.zeros(weights.shape[0], dtype=torch.bool, device=weights.device)
    else:
        task.projected.copy_(weights)
        _, condition = _factor(V @ V.mT)
        for group in (condition > _safe(n, width, epsilon)).nonzero().flatten().tolist():
            _unproven_rows(task, group, n, epsilon)
        identical = (task.projected == weights).all(-1).all(-1)
    return Reading(
        task.projected, True, whole.rank, whole.condition, identical, kept=task.kept, leverage=whole.leverage
    )


def _long_rows(task: _Causal, output: Tensor, epsilon: float) -> None:
    """More keys than the head is wide. Rows that see no more than that keep their weights, those behind are solved in blocks.

    Blocks take the head's output from where on every group allows that, and exact products before. Groups whose values may be dependent are done one by one.
    """
    n, width = task.V.shape[1:]
    inverse, condition, reach = _prefixes(task.V, width)
    ends = [min(low + ROWS, n) for low in range(width, n, ROWS)]
    safe = reach <= torch.tensor([_safe(end, width, epsilon) for end in ends], device=reach.device)  # [G, B]
    direct = (safe & (condition <= DIRECT_CONDITION)).all(0)
    exact = max((~direct).nonzero().flatten().tolist(), default=-1) + 1
    start = min(width + exact * ROWS, n)
    task.projected[:, :start] = task.weights[:, :start]
    proven = (condition[:, 0] <= _safe(width, width, epsilon)) & safe[:, :exact].all(1)
    groups = proven.nonzero().flatten()
    if exact and len(groups):
        _exact_rows(task, groups, width, start, inverse[groups, :exact])
    for group in (~proven).nonzero().flatten().tolist():
        _unproven_rows(task, group, start, epsilon)
    if start < n:
        _late_rows(task, output, start, inverse[:, exact:])


def _prefixes(V: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows from `start` on in blocks of ROWS -> L⁻¹ [G, B, D, D] of the Gram matrix of the rows before each block, and two upper bounds, [G, B].

    The condition number of the rows before the block, and the largest singular value of those up to its end over the smallest of those before it.
    """
    blocks = _in_blocks(V[:, start:])
    steps = torch.cat([(V[:, :start].mT @ V[:, :start])[:, None], blocks.mT @ blocks], dim=1)
    grams = steps.cumsum(1)  # [G, B + 1, D, D]: of the rows before block b
    inverse, condition = _factor(grams[:, :-1])
    # The largest singular value grows until the block's last row, and so does what counts as zero beside it.
    reach = condition * (grams.diagonal(dim1=-2, dim2=-1).sum(-1)[:, 1:] / grams[:, :-1].norm(dim=(-2, -1))).sqrt()
    return inverse, condition, reach


def _late_rows(task: _Causal, output: Tensor, start: int, inverse: Tensor) -> None:
    """Rows from `start` on, of all groups, by way of the head's output [H, N, D]."""
    groups, per_group = task.V.shape[0], task.weights.shape[0] // task.V.shape[0]
    rows, wanted = task.weights[:, start:], output[:, start:]
    by_group = wanted.to(task.V.dtype).reshape(groups, per_group, *wanted.shape[1:])
    solved = _solve(task.V[:, start:], by_group, inverse).flatten(0, 1)  # [H, R, D]
    keys = _by_head(task.V.to(rows.dtype), per_group).mT
    torch.bmm(solved.to(rows.dtype), keys, out=task.projected[:, start:]).tril_(start)
    share = (solved * wanted).sum(-1) / _squared_norms(rows)
    task.kept[:, start:] = share.clamp(0, 1).to(rows.dtype)


def _exact_rows(task: _Causal, chosen: Tensor, start: int, stop: int, inverse: Tensor) -> None:
    """Rows start to stop of the `chosen` groups, all in float64: their values may be worse conditioned."""
    weights, projected, kept = task.by_group()
    values, rows = task.V[chosen, :stop], weights[chosen, :, start:stop, :stop].double()
    output = rows @ values[:, None]
    solved = _solve(values[:, start:], output, inverse)  # [G, P, R, D]
    projected[chosen, :, start:stop, :stop] = (solved @ values[:, None].mT).tril_(start).to(projected.dtype)
    share = (solved * output).sum(-1) / _squared_norms(rows)
    kept[chosen, :, start:stop] = share.clamp(0, 1).to(kept.dtype)


def _solve(values: Tensor, output: Tensor, inverse: Tensor) -> Tensor:
    """Values [G, R, D] and outputs [G, P, R, D] of some rows -> G_i⁻¹ z_i of each, [G, P, R, D]: z_i its output, G_i the Gram matrix of the rows up to it.

    G_i = G + B_iᵀ B_i: G of the rows before its block, whose L⁻¹ [G, B, D, D] is `inverse`, and B_i the block's rows up to i. By Woodbury's identity that
    takes (I + B_i G⁻¹ B_iᵀ)⁻¹, and the Cholesky factors of these are the leading parts of a single one.
    """
    block = inverse @ _in_blocks(values).mT  # [G, B, D, ROWS]
    identity = torch.eye(ROWS, dtype=values.dtype, device=values.device)
    inner = torch.linalg.cholesky(identity + block.mT @ block)[:, None]  # [G, 1, B, ROWS, ROWS]
    block, inverse = block[:, None], inverse[:, None]
    whitened = inverse @ _in_blocks(output).mT  # [G, P, B, D, ROWS]
    # Column i belongs to row i, which knows the block's rows up to itself only: the upper triangle.
    update = torch.linalg.solve_triangular(inner, block.mT @ whitened, upper=False).triu_()
    update = torch.linalg.solve_triangular(inner.mT, update, upper=True)
    solved: Tensor = (inverse.mT @ (whitened - block @ update)).mT.flatten(2, 3)
    return solved[:, :, : values.shape[1]]


def _in_blocks(rows: Tensor) -> Tensor:
    """[..., N, D] -> [..., B, ROWS, D], with rows of zeros at the end."""
    padded = torch.nn.functional.pad(rows, (0, 0, 0, -rows.shape[-2] % ROWS))
    return padded.reshape(*rows.shape[:-2], -1, ROWS, rows.shape[-1])


def _unproven_rows(task: _Causal, group: int, stop: int, epsilon: float) -> None:
    """Rows up to `stop` of one group, with as few decompositions as its values allow."""
    V, per_group = task.V[group, :stop], task.weights.shape[0] // task.V.shape[0]
    short = min(V.shape)
    # The smallest singular value only falls from row to row, and the largest only grows: if the values up to there are independent, so are those of every
    # row before, which then keeps its weights.
    start = next((row for row in range(short, 0, -1) if _decompose(V[:row], row, epsilon)[1].numel() == row), 0)
    first_safe = _first_safe_row(V, epsilon)
    if start < first_safe:
        heads, rows, seen = (
            slice(group * per_group, (group + 1) * per_group),
            slice(start, first_safe),
            slice(first_safe),
        )
        weights = task.weights[heads, rows, seen]  # later keys are hidden from all of them
        mask = torch.ones(first_safe, first_safe, dtype=torch.bool, device=V.device).tril()[rows]
        task.projected[heads, rows, seen], task.kept[heads, rows] = _decomposed_rows(
            weights, V[None, seen], mask, epsilon
        )
    if first_safe < stop:
        inverse, _, _ = _prefixes(V[None], first_safe)
        _exact_rows(task, torch.tensor([group], device=V.device), first_safe, stop, inverse)


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


def _project_rows(weights: Tensor, V: Tensor, output: Tensor, mask: Tensor, epsilon: float) -> Reading:
    """Any mask [Q, K]."""
    projected, kept = _decomposed_rows(weights, V, mask, epsilon)
    whole = _project_all(weights[:, :1], V, output[:, :1], epsilon)
    identical = torch.stack([(projected[h] == weights[h]).all() for h in range(weights.shape[0])])
    return Reading(projected, True, whole.rank, whole.condition, identical, kept=kept, leverage=whole.leverage)


def _decomposed_rows(weights: Tensor, V: Tensor, mask: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Projected rows and their kept share, under any mask [Q, K]: one decomposition per row, batched. Slow, obvious, and right for sliding windows and near-dependent values."""
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
    return projected, kept


def _squared_norms(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1).square().clamp_min(torch.finfo(rows.dtype).tiny)
    return norms


def _by_head(per_group: Tensor, heads: int) -> Tensor:
    return per_group if heads == 1 else per_group.repeat_interleave(heads, dim=0)
