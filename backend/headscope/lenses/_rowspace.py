"""Projection of attention rows on the column space of the values: P = V V⁺, for each row on the keys that it may see.

The obvious way is one singular value decomposition per head (and, in a causal model, one per row). The same follows from the Gram matrix Vᵀ V, which is
only D × D, by a Cholesky factorisation in float64: Q = V L⁻ᵀ has orthonormal columns. That squares the condition number, so it is used only if a bound
on the condition number, computed from the factor itself, proves that no singular value is near the threshold below which it counts as zero. Heads
(and rows) without that proof are decomposed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.attention import Keys, Reading
from ..core.lazy import Tensor, torch
from ..errors import Unsupported

# Errors from the Gram matrix grow like eps(float64) * condition²: 1e-6 at this bound, a hundred times below the promised accuracy.
SAFE_CONDITION = 1e5
# Up to this condition L⁻¹ may be applied in float32, and to the head's output instead of the weights: errors are eps(float32) * condition, at most 1e-5.
DIRECT_CONDITION = 100.0
# Rows decomposed or factorised at once; bounds the scratch memory to a few tens of MB.
ROWS = 64


def project(weights: Tensor, values: Tensor, output: Tensor, keys: Keys, epsilon: float) -> Reading:
    """Project weights [H, Q, K] with values [G, K, D] and output = weights @ values [H, Q, D]: map [H, Q, K], rank, condition, kept share, leverage.

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
        return _project_all(weights, V, output, epsilon)
    if keys.rule == "prefix":
        return _project_prefix(weights, V, output, epsilon)
    assert keys.mask is not None  # noqa: S101 - the type of Keys, not a check of input
    return _project_rows(weights, V, output, keys.mask, epsilon)


def _safe(n: int, width: int, epsilon: float) -> float:
    """Return the largest condition number at which full rank is certain."""
    return min(SAFE_CONDITION, 0.5 / (max(n, width) * epsilon))


def _factor(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Factorise gram [..., D, D] = L Lᵀ and return L⁻¹ and an upper bound of the condition number of V, [...] (inf where there is none).

    cond(V)² = lambda_max / lambda_min <= |G|_F |G⁻¹|_F.
    """
    factor, failed = torch.linalg.cholesky_ex(gram, upper=True)  # R with Rᵀ R = G: LAPACK is faster with R and R⁻¹
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
        # Coordinates [H, Q, D] of the rows in that basis: weights @ basis, or the same from the head's output, which is known already.
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
    """Return left singular vectors [K, r] of V [K, D] and its r singular values that are not zero."""
    U, sigma, _ = torch.linalg.svd(V, full_matrices=False)
    significant = sigma > sigma[0] * max(n, V.shape[1]) * epsilon
    return U[:, significant], sigma[significant]


@dataclass(frozen=True)
class _Causal:
    """Causal weights [H, N, N], values [G, N, D] in float64, and the results, filled row by row: the projected map [H, N, N] and its kept share [H, N]."""

    weights: Tensor
    V: Tensor
    projected: Tensor
    kept: Tensor

    def by_group(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return views of weights, projected map and kept share with heads as [G, P]: [H, ...] -> [G, P, ...]."""
        groups = self.V.shape[0]
        weights, projected = (part.view(groups, -1, *part.shape[1:]) for part in (self.weights, self.projected))
        return weights, projected, self.kept.view(groups, -1, self.kept.shape[1])


def _project_prefix(weights: Tensor, V: Tensor, output: Tensor, epsilon: float) -> Reading:
    """Project causal rows: row i on the values of keys 0..i. The last row sees every key, so rank, condition and leverage are those of all keys."""
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
    """Project the rows of a head with more keys than its width. Rows that see at most that many keys keep their weights, later rows are solved in blocks.

    Blocks use the head's output from the first row from which every group allows it, and exact products before. Groups whose values may be linearly dependent
    are processed one by one.
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
    """Factorise the Gram matrix of the rows before each block of ROWS from `start` on: L⁻¹ [G, B, D, D], and two upper bounds, [G, B].

    The bounds are of the condition number of the rows before the block, and of the largest singular value up to the block's end over the smallest before it.
    """
    blocks = _in_blocks(V[:, start:])  # [G, B, ROWS, D]
    steps = torch.cat([(V[:, :start].mT @ V[:, :start])[:, None], blocks.mT @ blocks], dim=1)  # [G, B + 1, D, D]
    grams = steps.cumsum(1)  # of the rows before block b
    inverse, condition = _factor(grams[:, :-1])
    # The largest singular value grows until the block's last row, and the threshold for zero with it.
    reach = condition * (grams.diagonal(dim1=-2, dim2=-1).sum(-1)[:, 1:] / grams[:, :-1].norm(dim=(-2, -1))).sqrt()
    return inverse, condition, reach


def _late_rows(task: _Causal, output: Tensor, start: int, inverse: Tensor) -> None:
    """Project the rows from `start` on, of all groups, using the head's output [H, N, D]."""
    groups, per_group = task.V.shape[0], task.weights.shape[0] // task.V.shape[0]
    rows, wanted = task.weights[:, start:], output[:, start:]
    by_group = wanted.to(task.V.dtype).reshape(groups, per_group, *wanted.shape[1:])  # [H, R, D] -> [G, P, R, D]
    solved = _solve(task.V[:, start:], by_group, inverse).flatten(0, 1)  # [G, P, R, D] -> [H, R, D]
    keys = _by_head(task.V.to(rows.dtype), per_group).mT
    torch.bmm(solved.to(rows.dtype), keys, out=task.projected[:, start:]).tril_(start)
    share = (solved * wanted).sum(-1) / _squared_norms(rows)
    task.kept[:, start:] = share.clamp(0, 1).to(rows.dtype)


def _exact_rows(task: _Causal, chosen: Tensor, start: int, stop: int, inverse: Tensor) -> None:
    """Project rows start to stop of the `chosen` groups in float64, since their values may be ill-conditioned."""
    weights, projected, kept = task.by_group()
    values, rows = task.V[chosen, :stop], weights[chosen, :, start:stop, :stop].double()
    output = rows @ values[:, None]
    solved = _solve(values[:, start:], output, inverse)  # [G, P, R, D]
    projected[chosen, :, start:stop, :stop] = (solved @ values[:, None].mT).tril_(start).to(projected.dtype)
    share = (solved * output).sum(-1) / _squared_norms(rows)
    kept[chosen, :, start:stop] = share.clamp(0, 1).to(kept.dtype)


def _solve(values: Tensor, output: Tensor, inverse: Tensor) -> Tensor:
    """Return G_i⁻¹ z_i of some rows, [G, P, R, D]: z_i is the row's output [G, P, R, D], G_i the Gram matrix of the values [G, R, D] up to it.

    G_i = G + B_iᵀ B_i: G of the rows before the block, whose L⁻¹ [G, B, D, D] is `inverse`, and B_i the block's rows up to i. By Woodbury's identity that
    needs (I + B_i G⁻¹ B_iᵀ)⁻¹, and their Cholesky factors are the leading parts of a single factor.
    """
    block = inverse @ _in_blocks(values).mT  # [G, B, D, ROWS]
    identity = torch.eye(ROWS, dtype=values.dtype, device=values.device)
    inner = torch.linalg.cholesky(identity + block.mT @ block)[:, None]  # [G, 1, B, ROWS, ROWS]
    block, inverse = block[:, None], inverse[:, None]
    whitened = inverse @ _in_blocks(output).mT  # [G, P, B, D, ROWS]
    # Column i belongs to row i, which sees the block's rows only up to itself: the upper triangle.
    update = torch.linalg.solve_triangular(inner, block.mT @ whitened, upper=False).triu_()
    update = torch.linalg.solve_triangular(inner.mT, update, upper=True)
    solved: Tensor = (inverse.mT @ (whitened - block @ update)).mT
    solved = solved.flatten(2, 3)  # [G, P, B, ROWS, D] -> [G, P, B · ROWS, D]
    return solved[:, :, : values.shape[1]]


def _in_blocks(rows: Tensor) -> Tensor:
    """Split rows into blocks, [..., N, D] -> [..., B, ROWS, D], padded with zeros at the end."""
    padded = torch.nn.functional.pad(rows, (0, 0, 0, -rows.shape[-2] % ROWS))
    return padded.reshape(*rows.shape[:-2], -1, ROWS, rows.shape[-1])


def _unproven_rows(task: _Causal, group: int, stop: int, epsilon: float) -> None:
    """Project the rows up to `stop` of one group, with as few decompositions as its values allow."""
    V, per_group = task.V[group, :stop], task.weights.shape[0] // task.V.shape[0]
    short = min(V.shape)
    # From row to row the smallest singular value only falls and the largest only grows. So if the values up to a row are independent, those up to every
    # earlier row are, too, and it keeps its weights.
    start = next((row for row in range(short, 0, -1) if _decompose(V[:row], row, epsilon)[1].numel() == row), 0)
    first_safe = _first_safe_row(V, epsilon)
    if start < first_safe:
        heads = slice(group * per_group, (group + 1) * per_group)
        rows, seen = slice(start, first_safe), slice(first_safe)
        weights = task.weights[heads, rows, seen]  # later keys are hidden from all of them
        mask = torch.ones(first_safe, first_safe, dtype=torch.bool, device=V.device).tril()[rows]
        projected, kept = _decomposed_rows(weights, V[None, seen], mask, epsilon)
        task.projected[heads, rows, seen], task.kept[heads, rows] = projected, kept
    if first_safe < stop:
        inverse, _, _ = _prefixes(V[None], first_safe)
        _exact_rows(task, torch.tensor([group], device=V.device), first_safe, stop, inverse)


def _first_safe_row(V: Tensor, epsilon: float) -> int:
    """Return the first row i for which the values before it, V[:i], prove full column rank, found in growing steps; n if there is none.

    Gram matrices of prefixes only grow, so once one is well conditioned all later ones are.
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
    """Project rows under any mask [Q, K]."""
    projected, kept = _decomposed_rows(weights, V, mask, epsilon)
    whole = _project_all(weights[:, :1], V, output[:, :1], epsilon)
    identical = torch.stack([(projected[h] == weights[h]).all() for h in range(weights.shape[0])])
    return Reading(projected, True, whole.rank, whole.condition, identical, kept=kept, leverage=whole.leverage)


def _decomposed_rows(weights: Tensor, V: Tensor, mask: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return projected rows and their kept share under any mask [Q, K], with one decomposition per row, batched. Slow but right for sliding windows and near-dependent values."""
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
            share = (coordinates.square().sum(-1) / _squared_norms(exact)).clamp(0, 1)
            kept[heads, rows] = torch.where(independent, 1.0, share).to(kept.dtype)
    return projected, kept


def _squared_norms(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1).square().clamp_min(torch.finfo(rows.dtype).tiny)
    return norms


def _by_head(per_group: Tensor, heads: int) -> Tensor:
    return per_group if heads == 1 else per_group.repeat_interleave(heads, dim=0)
