"""Distributions of largest entropy with given means, by Newton's method on the dual, for many rows at once.

The distribution of largest entropy over points v_j with mean z has p_j proportional to exp(v_j · λ), where λ minimises log sum_j exp(v_j · λ) - λ · z. That is a convex
function of as many variables as the values have dimensions. Its gradient is the mean of p minus z, its Hessian the covariance of the points under p.

Newton's step is tried in full and halved until the function decreases enough, but never below a length for which it provably does. The third derivative of
log-sum-exp along a direction d is a third central moment, so it is at most the range ρ of v_j · d over the points times the second derivative. By that bound the
best step is ln(1 + ρ) / ρ of Newton's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from ..core.attention import Keys, Reading
from ..core.lazy import Tensor, torch
from ..errors import Unsupported

# Converged: the projections of both rows on the values' space differ by at most this, so their outputs differ by at most this times |V|.
TOLERANCE = 1e-9
# Added to the Hessian's diagonal: RIDGE times its trace, far above rounding, and RESTRAINT times the gradient's norm, which limits steps in flat directions.
RIDGE, RESTRAINT = 1e-13, 0.01
# Bounds of the scratch memory, in float64 entries: rows iterated at once, their Hessians, products of coordinates computed at once, and products kept between steps.
ROWS, HESSIANS, PRODUCTS, KEPT = 256 * 1024, 512 * 1024, 512 * 1024, 4 * 1024 * 1024


def most_even(weights: Tensor, values: Tensor, keys: Keys, epsilon: float, iterations: int) -> Reading:
    """Return the distributions of largest entropy with the output of weights [H, Q, K], whose rows sum to 1, on values [G, K, D]; computed in float64.

    Rows of zeros, of heads that are switched off, are no distributions and are NaN.

    Singular values (of the values without their mean) below sigma_1 * max(K, D) * epsilon count as zero, as for effective attention.
    """
    if max(values.shape[1:]) * epsilon > 0.05:
        raise Unsupported(
            "The distribution of largest entropy needs values computed in float32 or wider: half precision is too coarse to decide a rank. "
            'Set dtype="float32".'
        )
    heads, queries, count = weights.shape
    group = heads // values.shape[0]
    allowed = None if keys.rule == "all" else keys.allowed(queries, count).to(weights.device)
    result, settled = weights.clone(), torch.empty(heads, dtype=torch.bool, device=weights.device)
    empty = weights.sum(-1) == 0  # [H, Q]
    for place, one in enumerate(values.double()):  # [K, D]
        chosen = slice(place * group, (place + 1) * group)
        space = _space(one, epsilon)
        # Queries whose distribution is not the only one.
        open_rows = (~_unique(one, space, keys, allowed)).expand(queries).nonzero().flatten()
        settled[chosen] = open_rows.numel() == 0
        step = max(1, min(ROWS // count, HESSIANS // max(1, space.basis.shape[1] ** 2)) // group)
        for rows in torch.split(open_rows, step):
            part = weights[chosen, rows].double().flatten(0, 1)  # P heads of the group, R rows: [P, R, K] -> [P·R, K]
            mask = None if allowed is None else allowed[rows].repeat(group, 1)
            result[chosen, rows] = _solve(part, space, mask, iterations).view(group, -1, count).to(result.dtype)
    result.masked_fill_(empty[..., None], torch.nan)
    return Reading(result, identical=settled & ~empty.any(-1), undefined=result[..., 0].isnan().sum(-1))


@dataclass(frozen=True, slots=True)
class _Space:
    """Directions in which the values differ: orthonormal columns `basis` [K, r], orthogonal to 1.

    Singular values up to `zero` count as zero. `products` are those of every two coordinates, if they fit into memory.
    """

    basis: Tensor
    zero: Tensor
    products: list[tuple[slice, Tensor]] | None


def _space(V: Tensor, epsilon: float) -> _Space:
    zero = torch.linalg.matrix_norm(V.mT @ V, 2).sqrt() * max(V.shape) * epsilon
    basis, sigma, _ = torch.linalg.svd(V - V.mean(0), full_matrices=False)
    basis = basis[:, sigma > zero]
    fits = basis.shape[0] * basis.shape[1] ** 2 <= 2 * KEPT
    return _Space(basis, zero, list(_products(basis)) if fits else None)


def _unique(V: Tensor, space: _Space, keys: Keys, allowed: Tensor | None) -> Tensor:
    """Return the queries [Q] whose allowed keys have affinely independent values, so that no other distribution has the same output; [1] without a mask."""
    most = space.basis.shape[1] + 1
    if allowed is None:
        return torch.tensor([V.shape[0] <= most], device=V.device)
    counts = allowed.sum(-1)
    if keys.rule == "prefix":
        # Subsets of independent points are independent, so the prefixes that are independent are the shortest ones.
        lengths = range(1, min(most, V.shape[0]) + 1)
        return counts <= bisect_left(lengths, True, key=lambda n: not _independent(V[None, :n], space.zero))
    unique = counts <= 1
    for rows in torch.split(((counts > 1) & (counts <= most)).nonzero().flatten(), 64):
        places = allowed[rows].byte().topk(most, dim=-1).indices  # allowed keys first
        unique[rows] = _independent(V[places], space.zero, allowed[rows].gather(-1, places))
    return unique


def _independent(V: Tensor, zero: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return whether the points V [R, K, D] are affinely independent, [R]; only those that are `valid` [R, K] count."""
    valid = torch.ones(V.shape[:2], dtype=V.dtype, device=V.device) if valid is None else valid.to(V.dtype)
    counts = valid.sum(-1, keepdim=True)  # [R, 1]
    centred = (V - (valid[..., None] * V).sum(1, keepdim=True) / counts[..., None]) * valid[..., None]
    rank: Tensor = (torch.linalg.svdvals(centred) > zero).sum(-1)
    return rank >= counts[:, 0] - 1


def _solve(rows: Tensor, space: _Space, mask: Tensor | None, iterations: int) -> Tensor:
    """Return the distributions of largest entropy [R, K] with the same means of the basis as rows [R, K]; NaN where `iterations` steps were not enough, and for rows of zeros."""
    result, basis = torch.full_like(rows, torch.nan), space.basis
    sums = rows.sum(-1, keepdim=True)
    active = sums[:, 0].nonzero().flatten()
    rows, mask = rows[active] / sums[active], None if mask is None else mask[active]
    means = rows @ basis  # [R, r]
    scores = _start(rows, basis, mask)
    for _ in range(iterations + 1):
        guess = scores.softmax(-1)
        gradient = guess @ basis - means
        distance = torch.linalg.vector_norm(gradient, dim=-1)
        going = distance > TOLERANCE
        if not bool(going.all()):
            result[active[~going]] = guess[~going]
            active, scores, means, guess = active[going], scores[going], means[going], guess[going]
            gradient, distance = gradient[going], distance[going]
            mask = None if mask is None else mask[going]
        if not active.numel():
            break
        step = _newton(_covariance(guess, space), gradient, distance)
        scores = _descend(scores, step @ basis.mT, (step * means).sum(-1), (step * gradient).sum(-1), mask)
    return result


def _start(rows: Tensor, basis: Tensor, mask: Tensor | None) -> Tensor:
    """Return the scores to start from: the logarithms of the rows projected on the basis; -inf for masked keys."""
    logarithms = rows.clamp_min(1e-12).log()
    if mask is not None:
        middle = (logarithms * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
        logarithms = logarithms.where(mask, middle)
    scores = (logarithms @ basis) @ basis.mT
    return scores if mask is None else scores.masked_fill_(~mask, -torch.inf)


def _descend(scores: Tensor, move: Tensor, linear: Tensor, slope: Tensor, mask: Tensor | None) -> Tensor:
    """Take a step of the right length from scores [R, K], which a full step changes by `move`, and return the new scores.

    For a step of length t the dual changes by the change of log-sum-exp minus t * `linear` [R]; `slope` [R] is its derivative along the step.
    """
    allowed = move if mask is None else move.where(mask, move.mean(-1, keepdim=True))
    extent = (allowed.amax(-1) - allowed.amin(-1)).clamp_min(1e-12)
    safe = extent.log1p() / extent
    length, pending = torch.ones_like(safe), torch.arange(safe.numel(), device=safe.device)
    before = scores.logsumexp(-1)
    while pending.numel():
        tried = length[pending]
        after = (scores[pending] + tried[:, None] * move[pending]).logsumexp(-1) - tried * linear[pending]
        enough = after - before[pending] <= 1e-4 * tried * slope[pending] + 1e-14 * (1 + before[pending].abs())
        pending = pending[~(enough | (tried <= safe[pending]))]
        length[pending] = (length[pending] / 2).maximum(safe[pending])
    return scores + length[:, None] * move


def _products(basis: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield products of every two coordinates of every point, in blocks of keys: [k, r (r + 1) / 2]. With them the covariances of many rows are one matrix product."""
    count, width = basis.shape
    first, second = torch.triu_indices(width, width, device=basis.device)
    step = max(1, PRODUCTS // max(1, first.numel()))
    for low in range(0, count, step):
        block = basis[low : low + step]
        yield slice(low, low + step), block[:, first] * block[:, second]


def _covariance(guess: Tensor, space: _Space) -> Tensor:
    """Return the covariance of the points under every row of guess [R, K]: [R, r, r]."""
    basis, width = space.basis, space.basis.shape[1]
    packed = guess.new_zeros(guess.shape[0], width * (width + 1) // 2)
    for keys, block in _products(basis) if space.products is None else space.products:
        packed.addmm_(guess[:, keys], block)
    place = torch.empty(width, width, dtype=torch.long, device=basis.device)
    first, second = torch.triu_indices(width, width, device=basis.device)
    place[first, second] = place[second, first] = torch.arange(first.numel(), device=basis.device)
    mean = guess @ basis
    # packed [R, r (r + 1) / 2] -> [R, r, r]
    return packed[:, place].baddbmm_(mean[:, :, None], mean[:, None, :], alpha=-1)


def _newton(hessian: Tensor, gradient: Tensor, distance: Tensor) -> Tensor:
    """Return Newton's step [R, r] for hessian [R, r, r] (whose diagonal is raised in place) and gradient [R, r] of norm `distance` [R]."""
    diagonal = hessian.diagonal(dim1=-2, dim2=-1)
    trace = diagonal.sum(-1).clamp_min(torch.finfo(hessian.dtype).eps ** 2)
    diagonal += (RIDGE * trace + RESTRAINT * distance)[:, None]
    factor, failed = torch.linalg.cholesky_ex(hessian)
    solved = torch.cholesky_solve(gradient[..., None], factor)[..., 0]
    # Rounding can make a nearly singular Hessian indefinite. A step along the gradient, divided by the trace, decreases the dual as well, only less.
    return -solved.where((failed == 0)[:, None], gradient / trace[:, None])
