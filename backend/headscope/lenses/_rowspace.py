"""Projection of attention rows on the column space of the values: P = V V⁺, for each row on the keys that it may see.

The obvious way is one singular value decomposition per head (and, in a causal model, one per row). The same follows from the Gram matrix Vᵀ V, which is
only D × D, by a Cholesky factorisation in float64: Q = V L⁻ᵀ has orthonormal columns. That squares the condition number, so it is used only if a bound
on the condition number, computed from the factor itself, proves that no singular value is near the threshold below which it counts as zero. Heads
(and rows) without that proof are decomposed.

In a causal model a token that is repeated before any position is added has the same values again, so a prefix with a repeated token has dependent values.
V = P V' then, where V' holds the distinct rows. If those are independent the columns of V span what those of P do, however often each row is repeated, and
projecting is averaging over equal rows.
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
# Causal rows may be solved in float32 if that enlarges them by at most this factor before it makes them smaller again: errors are eps(float32) * gain².
DIRECT_GAIN = 10.0
# Rows decomposed or factorised at once; bounds the scratch memory to a few tens of MB.
ROWS = 48


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
        return _project_all(weights, V, output, _factor(_gram(V)), epsilon)
    if keys.rule == "prefix":
        return _project_prefix(weights, V, output, epsilon)
    assert keys.mask is not None  # noqa: S101 - the type of Keys, not a check of input
    return _project_rows(weights, V, output, keys.mask, epsilon)


def _safe(n: int, width: int, epsilon: float) -> float:
    """Return the largest condition number at which full rank is certain."""
    return min(SAFE_CONDITION, 0.5 / (max(n, width) * epsilon))


def _gram(V: Tensor) -> Tensor:
    """Return V Vᵀ or Vᵀ V of values [..., N, D], whichever is smaller."""
    return V @ V.mT if V.shape[-2] <= V.shape[-1] else V.mT @ V


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


def _project_all(weights: Tensor, V: Tensor, output: Tensor, factor: tuple[Tensor, Tensor], epsilon: float) -> Reading:
    """Project rows that see every key; `factor` is that of the Gram matrix of the values."""
    groups, n, width = V.shape
    per_group = weights.shape[0] // groups
    inverse, condition = factor[0], factor[1].clone()
    proven = condition <= _safe(n, width, epsilon)
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
    task = _Causal(weights.contiguous(), V, weights.new_empty(weights.shape), weights.new_ones(weights.shape[:2]))
    if n > width:
        prefixes = _prefixes(V, width)
        factor = prefixes.inverse[:, -1], prefixes.condition[:, -1]
        _long_rows(task, output, prefixes, epsilon)
        identical = torch.zeros(weights.shape[0], dtype=torch.bool, device=weights.device)
    else:
        factor = _factor(_gram(V))
        task.projected.copy_(weights)
        for group in (factor[1] > _safe(n, width, epsilon)).nonzero().flatten().tolist():
            _unproven_rows(task, group, n, epsilon)
        identical = (task.projected == weights).all(-1).all(-1)
    whole = _project_all(weights[:, :0], V, output[:, :0], factor, epsilon)
    return Reading(
        task.projected, True, whole.rank, whole.condition, identical, kept=task.kept, leverage=whole.leverage
    )


@dataclass(frozen=True)
class _Prefixes:
    """Factors of the Gram matrices of the values before each block of ROWS, and of all values after the last block: B = blocks + 1.

    inverse   [G, B, D, D]  L⁻¹
    condition [G, B]        upper bound of the condition number of those values
    reach     [G, B - 1]    upper bound of the largest singular value up to the block's end over the smallest before it
    update    [G, B - 1, ROWS, D]  N of the block, see `_solve`
    gain      [G, B - 1]    upper bound of the norm of V L⁻ᵀ, where V has the values up to the block's end, and L is the factor before it
    """

    inverse: Tensor
    condition: Tensor
    reach: Tensor
    update: Tensor
    gain: Tensor


def _prefixes(V: Tensor, start: int) -> _Prefixes:
    """Factorise the Gram matrix of the rows of V [G, N, D] before each block of ROWS from `start` on, and of all rows."""
    blocks = _in_blocks(V[:, start:])  # [G, blocks, ROWS, D]
    steps = torch.cat([(V[:, :start].mT @ V[:, :start])[:, None], blocks.mT @ blocks], dim=1)
    grams = steps.cumsum(1)  # [G, B, D, D]
    inverse, condition = _factor(grams)
    # The largest singular value grows until the block's last row, and the threshold for zero with it.
    growth = grams.diagonal(dim1=-2, dim2=-1).sum(-1)[:, 1:] / grams[:, :-1].norm(dim=(-2, -1))
    whitened = blocks @ inverse[:, :-1].mT
    identity = torch.eye(ROWS, dtype=V.dtype, device=V.device)
    inner = whitened @ whitened.mT
    factor, _ = torch.linalg.cholesky_ex(identity + inner)
    update = torch.linalg.solve_triangular(factor, whitened, upper=False)
    gain = (1 + inner.norm(dim=(-2, -1))).sqrt()
    return _Prefixes(inverse, condition, condition[:, :-1] * growth.sqrt(), update, gain)


def _long_rows(task: _Causal, output: Tensor, prefixes: _Prefixes, epsilon: float) -> None:
    """Project the rows of a head with more keys than its width. Rows that see at most that many keys keep their weights, later rows are solved in blocks.

    Blocks use products in float32 from the first row from which every group allows it, if necessary with columns that were made orthonormal, and in float64
    before. Groups whose values may be linearly dependent are processed one by one.
    """
    n, width = task.V.shape[1:]
    limits = [_safe(min(low + ROWS, n), width, epsilon) for low in range(width, n, ROWS)]
    safe = prefixes.reach <= torch.tensor(limits, device=output.device)  # [G, blocks]
    mild = safe & (prefixes.gain <= DIRECT_GAIN)
    late = _Late(task.V, prefixes.inverse[:, :-1], prefixes.condition[:, :-1], output)
    if late.exact(mild) > 1:
        late = _orthonormal(task.V, prefixes)
    exact = late.exact(mild)
    start = min(width + exact * ROWS, n)
    task.projected[:, :start] = task.weights[:, :start]
    proven = safe[:, :exact].all(1)
    groups = proven.nonzero().flatten()
    if exact and len(groups):
        _exact_rows(task, groups, width, start, prefixes.inverse[groups, :exact], prefixes.update[groups, :exact])
    for group in (~proven).nonzero().flatten().tolist():
        _unproven_rows(task, group, start, epsilon)
    if start < n:
        _late_rows(task, late, start, late.inverse[:, exact:], prefixes.update[:, exact:])


@dataclass(frozen=True)
class _Late:
    """What rows are solved with in float32.

    V         [G, N, D]          the values, or what spans the same space, in float64
    inverse   [G, blocks, D, D]  L⁻¹ of the Gram matrix of V before each block
    condition [G, blocks]        upper bound of the condition number of V before each block
    output    [H, N, D]          the weights times V, None where they have to be multiplied
    """

    V: Tensor
    inverse: Tensor
    condition: Tensor
    output: Tensor | None

    def exact(self, allowed: Tensor) -> int:
        """Return the number of blocks up to the last one that needs float64: all but those that are `allowed` [G, blocks] and well-conditioned."""
        direct = (allowed & (self.condition <= DIRECT_CONDITION)).all(0)
        return max((~direct).nonzero().flatten().tolist(), default=-1) + 1


def _orthonormal(V: Tensor, prefixes: _Prefixes) -> _Late:
    """Replace the values V [G, N, D] by orthonormal columns that span the same space: V L⁻ᵀ, with the factor L of all rows.

    They project alike, on every prefix, and their prefixes are far better conditioned than those of the values. No singular value of a prefix exceeds 1, so
    the norm of its inverse factor bounds its condition number.
    """
    whole = prefixes.inverse[:, -1]
    factor = torch.linalg.solve_triangular(whole, torch.eye(V.shape[-1], dtype=V.dtype, device=V.device), upper=False)
    inverse = prefixes.inverse[:, :-1] @ factor[:, None]
    return _Late(V @ whole.mT, inverse, inverse.norm(dim=(-2, -1)), None)


def _late_rows(task: _Causal, late: _Late, start: int, inverse: Tensor, update: Tensor) -> None:
    """Project the rows from `start` on, of all groups, block by block in float32: well-conditioned values allow it."""
    groups, n, width = late.V.shape
    values = late.V.to(task.weights.dtype)
    keys = _by_head(values, task.weights.shape[0] // groups)  # [H, N, D]
    # Rows, and the keys that they see.
    spans = [(slice(low, min(low + ROWS, n)), slice(min(low + ROWS, n))) for low in range(start, n, ROWS)]
    if late.output is None:
        output = torch.cat([task.weights[:, rows, seen] @ keys[:, seen] for rows, seen in spans], dim=1)
    else:
        output = late.output[:, start:].to(keys.dtype)
    by_group = output.reshape(groups, -1, n - start, width)  # [H, R, D] -> [G, P, R, D]
    solved = _solve(by_group, inverse, update).flatten(0, 1)
    for rows, seen in spans:
        block = solved[:, rows.start - start : rows.stop - start]
        task.projected[:, rows, seen] = (block @ keys[:, seen].mT).tril_(rows.start)
        task.projected[:, rows, seen.stop :] = 0
    share = (solved * output).sum(-1) / _squared_norms(task.weights[:, start:])
    task.kept[:, start:] = share.clamp(0, 1)


def _exact_rows(task: _Causal, chosen: Tensor, start: int, stop: int, inverse: Tensor, update: Tensor) -> None:
    """Project rows start to stop of the `chosen` groups in float64, since their values may be ill-conditioned; the factors are those of the rows' blocks."""
    weights, projected, kept = task.by_group()
    values, rows = task.V[chosen, :stop], weights[chosen, :, start:stop, :stop].double()
    output = rows @ values[:, None]
    solved = _solve(output, inverse, update)  # [G, P, R, D]
    projected[chosen, :, start:stop, :stop] = (solved @ values[:, None].mT).tril_(start).to(projected.dtype)
    share = (solved * output).sum(-1) / _squared_norms(rows)
    kept[chosen, :, start:stop] = share.clamp(0, 1).to(kept.dtype)


def _solve(output: Tensor, inverse: Tensor, update: Tensor) -> Tensor:
    """Return G_i⁻¹ z_i of some rows, [G, P, R, D], where z_i is the row's output [G, P, R, D] and G_i the Gram matrix of the values up to it.

    G_i = G + B_iᵀ B_i: G of the rows before the block, whose L⁻¹ [G, B, D, D] is `inverse`, and B_i the block's rows up to i. By Woodbury's identity
    G_i⁻¹ = L⁻ᵀ (I - N_iᵀ N_i) L⁻¹, where N_i has the first rows of N = C⁻¹ B L⁻ᵀ, the `update` [G, B, ROWS, D], and C Cᵀ = I + B G⁻¹ Bᵀ.
    """
    groups, per_group, count, width = output.shape
    inverse, update = inverse.to(output.dtype), update.to(output.dtype)
    # The heads of a group share their matrices: [G, P, B, ROWS, D] -> [G, B, P · ROWS, D].
    rows = _in_blocks(output).transpose(1, 2).flatten(2, 3)
    whitened = rows @ inverse.mT
    # Row i sees the block's rows only up to itself: the lower triangle.
    seen = (whitened @ update.mT).view(groups, -1, per_group, ROWS, ROWS).tril_().flatten(2, 3)
    solved: Tensor = (whitened - seen @ update) @ inverse
    solved = solved.view(groups, -1, per_group, ROWS, width).transpose(1, 2)  # [G, P, B, ROWS, D]
    return solved.flatten(2, 3)[:, :, :count]


def _in_blocks(rows: Tensor) -> Tensor:
    """Split rows into blocks, [..., N, D] -> [..., B, ROWS, D], padded with zeros at the end."""
    padded = torch.nn.functional.pad(rows, (0, 0, 0, -rows.shape[-2] % ROWS))
    return padded.reshape(*rows.shape[:-2], -1, ROWS, rows.shape[-1])


def _unproven_rows(task: _Causal, group: int, stop: int, epsilon: float) -> None:
    """Project the rows up to `stop` of one group: averages over equal rows as far as those prove enough, then decompositions until full rank is certain."""
    V, per_group = task.V[group, :stop], task.weights.shape[0] // task.V.shape[0]
    labels = _labels(V)
    start = _independent(V, labels, epsilon)
    _averaged_rows(task, group, labels[:start])
    safe = _first_safe_row(V, max(start, V.shape[1]), epsilon)
    if start < safe:
        heads = slice(group * per_group, (group + 1) * per_group)
        rows, seen = slice(start, safe), slice(safe)
        weights = task.weights[heads, rows, seen]  # later keys are hidden from all of them
        mask = torch.ones(safe, safe, dtype=torch.bool, device=V.device).tril()[rows]
        projected, kept = _decomposed_rows(weights, V[None, seen], mask, epsilon)
        task.projected[heads, rows, seen], task.kept[heads, rows] = projected, kept
    if safe < stop:
        prefixes = _prefixes(V[None], safe)
        chosen = torch.tensor([group], device=V.device)
        _exact_rows(task, chosen, safe, stop, prefixes.inverse[:, :-1], prefixes.update)


def _labels(V: Tensor) -> Tensor:
    """Return the number of each row of V [N, D] among its distinct rows, in the order in which they first appear, [N]."""
    numbers: dict[bytes, int] = {}
    return torch.tensor([numbers.setdefault(row.tobytes(), len(numbers)) for row in V.cpu().numpy()], device=V.device)


def _independent(V: Tensor, labels: Tensor, epsilon: float) -> int:
    """Return the number of leading rows i for which the distinct rows of V[: i + 1] are certain to be independent.

    Repeating rows only raises singular values, so the smallest one of V[: i + 1] that is not zero is at least that of its distinct rows V'. For every i
    that is bounded from the factor L of V' V'ᵀ: 1 / sigma² <= trace((V' V'ᵀ)⁻¹), the squares of the leading part of L⁻¹.
    """
    width = V.shape[1]
    latest = labels.cummax(0).values  # [N]: row i sees the distinct rows up to this one
    first = torch.searchsorted(latest, torch.arange(min(int(latest[-1]) + 1, width), device=V.device))
    distinct = V[first]
    factor, failed = torch.linalg.cholesky_ex(distinct @ distinct.mT)
    order = int(failed) - 1 if failed else len(first)
    identity = torch.eye(order, dtype=V.dtype, device=V.device)
    inverse = torch.linalg.solve_triangular(factor[:order, :order], identity, upper=False)
    reciprocal = inverse.square().sum(-1).cumsum(0)
    rows = int((latest < order).sum())
    condition = (V[:rows].square().sum(-1).cumsum(0) * reciprocal[latest[:rows]]).sqrt()
    safe = torch.tensor([_safe(row + 1, width, epsilon) for row in range(rows)], dtype=V.dtype, device=V.device)
    return int((condition <= safe).sum())


def _averaged_rows(task: _Causal, group: int, labels: Tensor) -> None:
    """Replace the weights of a group's first rows by their averages over equal tokens, by `labels` [R]; each row averages over the tokens up to itself."""
    stop = len(labels)
    weights, projected, kept = task.by_group()
    repeated = labels.cummax(0).values < torch.arange(stop, device=labels.device)  # rows that see a token twice
    if not bool(repeated.any()):
        return
    start = stop - int(repeated.sum())
    rows = weights[group, :, start:stop, :stop].double()
    member = torch.nn.functional.one_hot(labels).to(rows.dtype)  # [R, distinct]
    counts = member.cumsum(0)[start:]
    means = (rows @ member) / counts.clamp_min(1)
    projected[group, :, start:stop, :stop] = means[..., labels].tril_(start).to(projected.dtype)
    share = (means.square() * counts).sum(-1) / _squared_norms(rows)
    kept[group, :, start:stop] = share.clamp(0, 1).to(kept.dtype)


def _first_safe_row(V: Tensor, row: int, epsilon: float) -> int:
    """Return the first row i from `row` on for which the values before it, V[:i], prove full column rank, found in growing steps; n if there is none.

    Gram matrices of prefixes only grow, so once one is well conditioned all later ones are.
    """
    n, width = V.shape
    safe = _safe(n, width, epsilon)
    total = V.square().sum()  # trace(G_n): bounds the largest eigenvalue of every prefix
    step = 1
    while row < n:
        gram = V[:row].mT @ V[:row]
        condition = _factor(gram)[1]
        if bool(condition * (total / torch.linalg.matrix_norm(gram)).sqrt() <= safe):
            return row
        row, step = row + step, min(2 * step, 16)
    return n


def _project_rows(weights: Tensor, V: Tensor, output: Tensor, mask: Tensor, epsilon: float) -> Reading:
    """Project rows under any mask [Q, K]."""
    projected, kept = _decomposed_rows(weights, V, mask, epsilon)
    whole = _project_all(weights[:, :0], V, output[:, :0], _factor(_gram(V)), epsilon)
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
